#include "client/loadgen/plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client::loadgen {
namespace {

constexpr double kWidth = 1120, kHeight = 500;
constexpr double kTop = 84, kBottom = 66;  // margins of the panels
constexpr double kPanelWidth = 440;
constexpr double kLeftPanel = 84, kRightPanel = 640;
constexpr const char* kInk = "#24292f";
constexpr const char* kGrid = "#dfe3e8";
// Told apart by people who see colours differently too (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#7f7f7f", "#111111"};
constexpr const char* kDashes[] = {"", "7 4", "2 3"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// 1500000 → "1.5 M".
std::string Short(double value) {
  const char* const units[] = {"", " k", " M", " G"};
  size_t unit = 0;
  for (; unit < 3 && value >= 1000; ++unit) value /= 1000;
  return absl::StrFormat("%.3g%s", value, units[unit]);
}

std::string ShortBytes(double value) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit < 4 && value >= 1024; ++unit) value /= 1024;
  return absl::StrFormat("%.3g %s", value, units[unit]);
}

std::string ShortTime(double us) {
  if (us < 1000) return absl::StrFormat("%.3g µs", us);
  return us < 1e6 ? absl::StrFormat("%.3g ms", us / 1e3) : absl::StrFormat("%.3g s", us / 1e6);
}

struct Point {
  double x = 0, y = 0;
  std::string what;  // shown when pointed at
};
struct Line {
  std::string name;
  std::vector<Point> points;
};

class Svg {
 public:
  void Text(double x, double y, const std::string& text, const char* anchor, double size,
            const std::string& more = "") {
    absl::StrAppendFormat(&body_,
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\"%s>%s</text>\n", x,
                          y, anchor, size, more, Escaped(text));
  }
  void Rule(double x1, double y1, double x2, double y2, const char* colour, double width = 1,
            const std::string& dash = "") {
    absl::StrAppendFormat(&body_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                          "stroke-width=\"%g\"%s/>\n",
                          x1, y1, x2, y2, colour, width, Dash(dash));
  }
  void Path(const std::vector<Point>& points, const char* colour, const std::string& dash) {
    std::string text;
    for (const Point& point : points) absl::StrAppendFormat(&text, "%.1f,%.1f ", point.x, point.y);
    absl::StrAppendFormat(&body_,
                          "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" "
                          "stroke-linejoin=\"round\"%s/>\n",
                          text, colour, Dash(dash));
    for (const Point& point : points) {
      absl::StrAppendFormat(
          &body_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\"><title>%s</title></circle>\n",
          point.x, point.y, colour, Escaped(point.what));
    }
  }
  std::string Finish() const {
    return absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
        "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" fill=\"%s\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
        kWidth, kHeight + extra_, kWidth, kHeight + extra_, kInk, body_);
  }
  void Grow(double height) { extra_ = std::max(extra_, height); }

 private:
  static std::string Dash(const std::string& dash) {
    return dash.empty() ? "" : absl::StrCat(" stroke-dasharray=\"", dash, "\"");
  }

  std::string body_;
  double extra_ = 0;
};

// An axis: values into 0 … 1.
struct Scale {
  double low = 0, high = 1;
  bool log = false;
  double At(double value) const {
    if (!log) return high > low ? (value - low) / (high - low) : 0.5;
    const double span = std::log(high) - std::log(low);
    return span > 0 ? (std::log(std::max(value, low)) - std::log(low)) / span : 0.5;
  }
};

class Panel {
 public:
  Panel(Svg* svg, double left, std::string title, Scale x, Scale y) : svg_(*svg), left_(left), x_(x), y_(y) {
    svg_.Text(left_, kTop - 18, title, "start", 14, " font-weight=\"600\"");
  }
  double X(double value) const { return left_ + 18 + x_.At(value) * (kPanelWidth - 36); }
  double Y(double value) const { return kHeight - kBottom - y_.At(value) * (kHeight - kBottom - kTop); }

  void YTick(double value, const std::string& label) {
    svg_.Rule(left_, Y(value), left_ + kPanelWidth, Y(value), kGrid);
    svg_.Text(left_ - 8, Y(value) + 4, label, "end", 12);
  }
  void XTick(double value, const std::string& label) {
    svg_.Rule(X(value), kHeight - kBottom, X(value), kHeight - kBottom + 5, kInk);
    svg_.Text(X(value), kHeight - kBottom + 20, label, "middle", 12);
  }
  void Axes(const std::string& x_name, const std::string& y_name) {
    svg_.Rule(left_, kHeight - kBottom, left_ + kPanelWidth, kHeight - kBottom, kInk, 1.2);
    svg_.Text(left_ + kPanelWidth / 2, kHeight - kBottom + 42, x_name, "middle", 13);
    const double middle = (kTop + kHeight - kBottom) / 2;
    svg_.Text(left_ - 62, middle, y_name, "middle", 13,
              absl::StrFormat(" transform=\"rotate(-90 %.1f %.1f)\"", left_ - 62, middle));
  }
  void Draw(const Line& line, size_t index) {
    std::vector<Point> points;
    for (const Point& point : line.points) points.push_back({X(point.x), Y(point.y), point.what});
    svg_.Path(points, kColours[index % std::size(kColours)],
              kDashes[index / std::size(kColours) % std::size(kDashes)]);
  }

 private:
  Svg& svg_;
  const double left_;
  const Scale x_, y_;
};

std::string NameOf(const std::string& series, const std::string& form) {
  return series.empty() ? form : form.empty() ? series : absl::StrCat(series, ", ", form);
}

// Throughput: one line for each series and form.
std::vector<Line> ThroughputLines(const std::vector<CaseResult>& results) {
  std::vector<Line> lines;
  for (const CaseResult& result : results) {
    for (const FormResult& form : result.forms) {
      if (form.turns.empty()) continue;
      const std::string name = NameOf(result.measured.series, form.form);
      auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& one) { return one.name == name; });
      if (line == lines.end()) line = lines.insert(lines.end(), Line{name, {}});
      const double rate = HarmonicMean(form.UnitsPerSecond());
      line->points.push_back(
          {result.measured.x, rate, absl::StrCat(result.measured.label, ": ", Short(rate))});
    }
  }
  for (Line& line : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  }
  return lines;
}

constexpr double kPercents[] = {50, 90, 99, 99.9, 100};
constexpr const char* kPercentNames[] = {"p50", "p90", "p99", "p99.9", "max"};

// Latency: one line for each case and form, its place on the axis the percentile's number.  Where those would
// be too many to tell apart, the cases of a series are one.
std::vector<Line> LatencyLines(const std::vector<CaseResult>& results) {
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
  std::vector<Line> lines;
  for (const auto& [name, latency] : latencies) {
    if (latency.count() == 0) continue;
    Line line{name, {}};
    for (size_t i = 0; i < std::size(kPercents); ++i) {
      const double us = std::max(static_cast<double>(latency.Percentile(kPercents[i])) / 1e3, 0.001);
      line.points.push_back(
          {static_cast<double>(i), us, absl::StrCat(kPercentNames[i], ": ", ShortTime(us))});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// Below the panel, in two columns; returns how far it reaches below the drawing.
void Legend(Svg* svg, double left, const std::vector<Line>& lines) {
  constexpr double kRow = 19;
  const size_t columns = lines.size() > 6 ? 2 : 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    const double x = left + static_cast<double>(i % columns) * kPanelWidth / 2;
    const double y = kHeight + 4 + static_cast<double>(i / columns) * kRow;
    svg->Rule(x, y - 4, x + 26, y - 4, kColours[i % std::size(kColours)], 2.6,
              kDashes[i / std::size(kColours) % std::size(kDashes)]);
    svg->Text(x + 34, y, lines[i].name.empty() ? "measured" : lines[i].name, "start", 12);
    svg->Grow(static_cast<double>(i / columns + 1) * kRow + 10);
  }
}

void DrawThroughput(Svg* svg, const ExperimentInfo& experiment, const std::vector<Line>& lines) {
  double top = 0;
  std::set<double> xs;
  for (const Line& line : lines) {
    for (const Point& point : line.points) {
      top = std::max(top, point.y);
      xs.insert(point.x);
    }
  }
  const std::vector<double> ticks = NiceTicks(top);
  const double low = xs.empty() ? 1 : *xs.begin(), high = xs.empty() ? 1 : *xs.rbegin();
  Panel panel(svg, kLeftPanel, "Throughput", Scale{low, high, experiment.x_log},
              Scale{0, ticks.back(), false});
  for (double tick : ticks) panel.YTick(tick, Short(tick));
  const bool bytes = experiment.kind == ExperimentKind::kMmap1;
  for (double x : xs) panel.XTick(x, bytes ? ShortBytes(x) : Short(x));
  panel.Axes(std::string(experiment.x_axis), absl::StrCat(std::string(experiment.unit), " a second"));
  for (size_t i = 0; i < lines.size(); ++i) panel.Draw(lines[i], i);
  Legend(svg, kLeftPanel, lines);
}

// 1, 2 and 5 × 10^n around the values; powers of ten alone where those would be many.
std::vector<double> LogTicks(double low, double high) {
  const bool wide = high / low > 1000;
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low))); ticks.empty() || ticks.back() < high;
       decade *= 10) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (wide && factor != 1) continue;
      const double tick = factor * decade;
      if (tick <= low) ticks.clear();  // the largest that is not above is the first
      if (ticks.empty() || ticks.back() < high) ticks.push_back(tick);
    }
  }
  if (ticks.size() == 1) ticks.push_back(2 * ticks.front());
  return ticks;
}

void DrawLatency(Svg* svg, const std::vector<Line>& lines) {
  double low = 1e12, high = 0;
  for (const Line& line : lines) {
    for (const Point& point : line.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  if (lines.empty()) low = high = 1;
  const std::vector<double> ticks = LogTicks(low, high);
  Panel panel(svg, kRightPanel, "Latency, batch to acknowledgement", Scale{0, 4, false},
              Scale{ticks.front(), ticks.back(), true});
  for (double tick : ticks) panel.YTick(tick, ShortTime(tick));
  for (size_t i = 0; i < std::size(kPercentNames); ++i) panel.XTick(static_cast<double>(i), kPercentNames[i]);
  panel.Axes("percentile", "latency (log)");
  for (size_t i = 0; i < lines.size(); ++i) panel.Draw(lines[i], i);
  Legend(svg, kRightPanel, lines);
}

}  // namespace

std::vector<double> NiceTicks(double top) {
  constexpr double kMost = 5;  // steps
  if (!(top > 0)) return {0, 1};
  const double magnitude = std::pow(10, std::floor(std::log10(top / kMost)));
  double step = magnitude;
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * magnitude;
    if (top / step <= kMost) break;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < top) ticks.push_back(static_cast<double>(ticks.size()) * step);
  return ticks;
}

std::string PlotSvg(const ExperimentInfo& experiment, const std::vector<CaseResult>& results) {
  Svg svg;
  svg.Text(kLeftPanel, 36, absl::StrCat("memcg-loadgen ", std::string(experiment.name)), "start", 20,
           " font-weight=\"600\"");
  DrawThroughput(&svg, experiment, ThroughputLines(results));
  DrawLatency(&svg, LatencyLines(results));
  return svg.Finish();
}

}  // namespace memcgd::client::loadgen
