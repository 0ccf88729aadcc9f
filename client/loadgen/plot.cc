#include "client/loadgen/plot.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/svg_plot.h"

namespace memcgd::client::loadgen {
namespace {

std::string NameOf(const std::string& series, const std::string& form) {
  return series.empty() ? form : form.empty() ? series : absl::StrCat(series, ", ", form);
}

// Throughput: one line for each series and form.
std::vector<PlotLine> ThroughputLines(const std::vector<CaseResult>& results) {
  std::vector<PlotLine> lines;
  for (const CaseResult& result : results) {
    for (const FormResult& form : result.forms) {
      if (form.turns.empty()) continue;
      const std::string name = NameOf(result.measured.series, form.form);
      auto line =
          std::find_if(lines.begin(), lines.end(), [&](const PlotLine& one) { return one.name == name; });
      if (line == lines.end()) line = lines.insert(lines.end(), PlotLine{name, {}});
      const double rate = HarmonicMean(form.UnitsPerSecond());
      line->points.push_back(
          {result.measured.x, rate, absl::StrCat(result.measured.label, ": ", ShortNumber(rate))});
    }
  }
  for (PlotLine& line : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  return lines;
}

constexpr double kPercents[] = {50, 90, 99, 99.9, 100};
constexpr const char* kPercentNames[] = {"p50", "p90", "p99", "p99.9", "max"};

// Latency: one line for each case and form, its place on the axis the percentile's number.  Where those would
// be too many to tell apart, the cases of a series are one.
std::vector<PlotLine> LatencyLines(const std::vector<CaseResult>& results) {
  constexpr size_t kMostLines = 8;
  const bool by_case = results.empty() || results.size() * results.front().forms.size() <= kMostLines;
  std::vector<std::pair<std::string, Histogram>> latencies;
  for (const CaseResult& result : results) {
    for (const FormResult& form : result.forms) {
      const std::string name = NameOf(by_case ? result.measured.label : result.measured.series, form.form);
      auto known = std::find_if(latencies.begin(), latencies.end(),
                                [&](const auto& one) { return one.first == name; });
      if (known == latencies.end()) known = latencies.insert(known, {name, Histogram()});
      known->second.Merge(form.Latency());
    }
  }
  std::vector<PlotLine> lines;
  for (const auto& [name, latency] : latencies) {
    if (latency.count() == 0) continue;
    PlotLine line{name, {}};
    for (size_t i = 0; i < std::size(kPercents); ++i) {
      const double us = std::max(static_cast<double>(latency.Percentile(kPercents[i])) / 1e3, 0.001);
      line.points.push_back(
          {static_cast<double>(i), us, absl::StrCat(kPercentNames[i], ": ", ShortTime(us))});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void DrawThroughput(Svg* svg, const ExperimentInfo& experiment, const std::vector<PlotLine>& lines) {
  double top = 0;
  std::set<double> xs;
  for (const PlotLine& line : lines) {
    for (const PlotPoint& point : line.points) {
      top = std::max(top, point.y);
      xs.insert(point.x);
    }
  }
  const std::vector<double> ticks = NiceTicks(top);
  const double low = xs.empty() ? 1 : *xs.begin(), high = xs.empty() ? 1 : *xs.rbegin();
  Panel panel(svg, PlotSide::kLeft, "Throughput", PlotScale{low, high, experiment.x_log},
              PlotScale{0, ticks.back(), false});
  for (double tick : ticks) panel.YTick(tick, ShortNumber(tick));
  const bool bytes = experiment.kind == ExperimentKind::kMmap1;
  for (double x : xs) panel.XTick(x, bytes ? ShortBytes(x) : ShortNumber(x));
  panel.Axes(std::string(experiment.x_axis), absl::StrCat(std::string(experiment.unit), " a second"));
  panel.Draw(lines);
  panel.Legend(lines);
}

void DrawLatency(Svg* svg, const std::vector<PlotLine>& lines) {
  double low = 1e12, high = 0;
  for (const PlotLine& line : lines) {
    for (const PlotPoint& point : line.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  if (lines.empty()) low = high = 1;
  const std::vector<double> ticks = LogTicks(low, high);
  Panel panel(svg, PlotSide::kRight, "Latency, batch to acknowledgement", PlotScale{0, 4, false},
              PlotScale{ticks.front(), ticks.back(), true});
  for (double tick : ticks) panel.YTick(tick, ShortTime(tick));
  for (size_t i = 0; i < std::size(kPercentNames); ++i) panel.XTick(static_cast<double>(i), kPercentNames[i]);
  panel.Axes("percentile", "latency (log)");
  panel.Draw(lines);
  panel.Legend(lines);
}

}  // namespace

std::string PlotSvg(const ExperimentInfo& experiment, const std::vector<CaseResult>& results) {
  Svg svg;
  svg.Title(absl::StrCat("memcg-loadgen ", std::string(experiment.name)));
  DrawThroughput(&svg, experiment, ThroughputLines(results));
  DrawLatency(&svg, LatencyLines(results));
  return svg.Finish();
}

}  // namespace memcgd::client::loadgen
