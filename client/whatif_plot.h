// The drawing of a sweep: refaults and major faults over the knob that changes, and beside it the miss-ratio
// curve of the cgroup's file reads.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_WHATIF_PLOT_H_
#define MEMCGD_CLIENT_WHATIF_PLOT_H_

#include <string>
#include <utility>
#include <vector>

#include "memcgd/v1/whatif.pb.h"

namespace memcgd::client {

struct WhatIfPlot {
  struct Point {
    std::vector<std::pair<std::string, std::string>> knobs;  // the same ones in each, but for the first: none
    memcgd::v1::CgroupResult result;
  };
  std::string cgroup;
  std::string trace;
  std::string bound;          // what bounds the answer
  std::vector<Point> points;  // the first without any knob, with the curve
};

std::string PlotWhatIf(const WhatIfPlot& plot);
// A page with the drawing and a table of text.
std::string HtmlAround(const std::string& title, const std::string& svg, const std::string& table);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_WHATIF_PLOT_H_
