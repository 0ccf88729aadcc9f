#include "client/whatif_plot.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/svg_plot.h"

namespace memcgd::client {
namespace {

using Knobs = std::vector<std::pair<std::string, std::string>>;

// A knob's value as a place on the axis: bytes, or a number; "max" is where the cgroup was without a limit.
double Place(const std::string& value, double without_limit) {
  if (value == "max") return without_limit;
  uint64_t number = 0;
  const size_t digits = std::min(value.find_first_not_of("0123456789"), value.size());
  if (!absl::SimpleAtoi(value.substr(0, digits), &number)) return 0;
  const size_t power = digits < value.size()
                           ? std::string("KMGTPE").find(static_cast<char>(value[digits] & ~0x20))
                           : std::string::npos;
  double place = static_cast<double>(number);
  for (size_t i = 0; power != std::string::npos && i <= power; ++i) place *= 1024;
  return place;
}

// The knob along the axis: the first that has several values, else the first.
size_t AxisOf(const WhatIfPlot& plot) {
  const size_t knobs = plot.points.back().knobs.size();
  for (size_t knob = 0; knob < knobs; ++knob) {
    std::set<std::string> values;
    for (const WhatIfPlot::Point& point : plot.points) {
      if (!point.knobs.empty()) values.insert(point.knobs[knob].second);
    }
    if (values.size() > 1) return knob;
  }
  return 0;
}

// What the other knobs are: "memory.swappiness 60".
std::string OthersOf(const Knobs& knobs, size_t axis) {
  std::string text;
  for (size_t i = 0; i < knobs.size(); ++i) {
    if (i != axis) absl::StrAppend(&text, text.empty() ? "" : ", ", knobs[i].first, " ", knobs[i].second);
  }
  return text;
}

void AddTo(std::vector<PlotLine>* lines, const std::string& name, PlotPoint point) {
  auto line =
      std::find_if(lines->begin(), lines->end(), [&](const PlotLine& one) { return one.name == name; });
  if (line == lines->end()) line = lines->insert(lines->end(), PlotLine{name, {}});
  line->points.push_back(std::move(point));
}

// Refaults and major faults, a line each for each combination of the other knobs.
std::vector<PlotLine> SweepLines(const WhatIfPlot& plot, size_t axis) {
  std::vector<PlotLine> lines;
  const auto without_limit = static_cast<double>(plot.points.front().result.peak_bytes());
  for (const WhatIfPlot::Point& point : plot.points) {
    if (point.knobs.empty()) continue;
    const std::string others = OthersOf(point.knobs, axis);
    const std::string behind = others.empty() ? "" : absl::StrCat(" (", others, ")");
    const double x = Place(point.knobs[axis].second, without_limit);
    const bool killed = point.result.oom_kills() != 0;
    const auto add = [&](const char* name, uint64_t count) {
      const std::string what =
          absl::StrCat(point.knobs[axis].second, ": ", count, " ", name,
                       killed ? absl::StrCat(", ", point.result.oom_kills(), " killed") : "");
      AddTo(&lines, absl::StrCat(name, behind), {x, static_cast<double>(count), what, killed});
    };
    add("refaults", point.result.refaults_file() + point.result.refaults_anon());
    add("major faults", point.result.major_faults());
  }
  for (PlotLine& line : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  return lines;
}

void DrawSweep(Svg* svg, const WhatIfPlot& plot) {
  if (plot.points.size() < 2 || plot.points.back().knobs.empty()) return;
  const size_t axis = AxisOf(plot);
  const std::string& knob = plot.points.back().knobs[axis].first;
  const bool bytes = knob != "memory.swappiness";
  const std::vector<PlotLine> lines = SweepLines(plot, axis);
  double top = 0;
  bool killed = false;
  std::set<double> xs;
  for (const PlotLine& line : lines) {
    for (const PlotPoint& point : line.points) {
      top = std::max(top, point.y);
      killed |= point.marked;
      xs.insert(point.x);
    }
  }
  const std::vector<double> ticks = NiceTicks(top);
  const bool log = bytes && *xs.begin() > 0 && *xs.rbegin() / *xs.begin() > 4;
  Panel panel(svg, PlotSide::kLeft,
              killed ? "Refaults and major faults (×: something was killed)" : "Refaults and major faults",
              {*xs.begin(), *xs.rbegin(), log}, {0, ticks.back(), false});
  for (double tick : ticks) panel.YTick(tick, ShortNumber(tick));
  for (double x : xs) panel.XTick(x, bytes ? ShortBytes(x) : ShortNumber(x));
  panel.Axes(log ? knob + " (log)" : knob, "pages");
  panel.Draw(lines);
  panel.Legend(lines);
}

void DrawCurve(Svg* svg, const WhatIfPlot& plot) {
  const memcgd::v1::MissRatioCurve& curve = plot.points.front().result.miss_ratio();
  PlotLine line{"", {}};
  line.dots = false;
  const auto place = [](uint64_t cache) { return static_cast<double>(cache); };
  double before = 1;
  for (const auto& point : curve.points()) {  // a step: the ratio holds up to the next size
    line.points.push_back({place(point.cache_bytes()), before, ""});
    line.points.push_back({place(point.cache_bytes()), point.miss_ratio(), ""});
    before = point.miss_ratio();
  }
  const bool empty = curve.references() == 0;
  line.name = empty ? "no read of a file page in the trace"
                    : absl::StrCat(curve.references(), " reads of ", curve.distinct_pages(), " pages",
                                   curve.sampling_rate() < 1 ? absl::StrFormat(", %.3g %% of them sampled",
                                                                               curve.sampling_rate() * 100)
                                                             : "");
  const double most = line.points.empty() ? 1 : line.points.back().x;
  constexpr int kSizes = 5;
  Panel panel(svg, PlotSide::kRight, "Misses of file reads by the size of the cache (LRU)", {0, most, false},
              {0, 1, false});
  for (int i = 0; i <= 5; ++i) panel.YTick(i / 5.0, absl::StrFormat("%d %%", i * 20));
  for (int i = 0; most > 0 && i <= kSizes; ++i) panel.XTick(most * i / kSizes, ShortBytes(most * i / kSizes));
  panel.Axes("cache", "reads that miss");
  if (!empty) panel.Draw({line});
  panel.Legend({line});
}

}  // namespace

std::string PlotWhatIf(const WhatIfPlot& plot) {
  Svg svg;
  svg.Title(absl::StrCat("memcgctl whatif ", plot.cgroup), absl::StrCat(plot.trace));
  DrawSweep(&svg, plot);
  DrawCurve(&svg, plot);
  svg.Footnote(plot.bound);
  return svg.Finish();
}

std::string HtmlAround(const std::string& title, const std::string& svg, const std::string& table) {
  return absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
                      EscapedForMarkup(title),
                      "</title>\n<style>body { margin: 1.5rem; font-family: system-ui, sans-serif } svg { "
                      "max-width: 100%; height: "
                      "auto } pre { overflow-x: auto }</style></head>\n<body>\n",
                      svg, "<pre>", EscapedForMarkup(table), "</pre>\n</body></html>\n");
}

}  // namespace memcgd::client
