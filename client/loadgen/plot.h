// A drawing of a run as SVG: throughput over threads (or sizes, or cgroups), and the latency's percentiles.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_LOADGEN_PLOT_H_
#define MEMCGD_CLIENT_LOADGEN_PLOT_H_

#include <string>
#include <vector>

#include "client/loadgen/summary.h"

namespace memcgd::client::loadgen {

std::string PlotSvg(const ExperimentInfo& experiment, const std::vector<CaseResult>& results);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_PLOT_H_
