#include "client/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client {
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

std::string Dash(const std::string& dash) {
  return dash.empty() ? "" : absl::StrCat(" stroke-dasharray=\"", dash, "\"");
}

const char* ColourOf(size_t line) { return kColours[line % std::size(kColours)]; }
const char* DashOf(size_t line) { return kDashes[line / std::size(kColours) % std::size(kDashes)]; }

}  // namespace

std::string EscapedForMarkup(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// 1500000 → "1.5 M".
std::string ShortNumber(double value) {
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

void Svg::Text(double x, double y, const std::string& text, const char* anchor, double size,
               const std::string& more) {
  absl::StrAppendFormat(&body_,
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\"%s>%s</text>\n", x, y,
                        anchor, size, more, EscapedForMarkup(text));
}

void Svg::Rule(double x1, double y1, double x2, double y2, const char* colour, double width,
               const std::string& dash) {
  absl::StrAppendFormat(&body_,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                        "stroke-width=\"%g\"%s/>\n",
                        x1, y1, x2, y2, colour, width, Dash(dash));
}

void Svg::Path(const PlotLine& line, const char* colour, const std::string& dash) {
  std::string text;
  for (const PlotPoint& point : line.points) absl::StrAppendFormat(&text, "%.1f,%.1f ", point.x, point.y);
  absl::StrAppendFormat(&body_,
                        "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" "
                        "stroke-linejoin=\"round\"%s/>\n",
                        text, colour, Dash(dash));
  for (const PlotPoint& point : line.points) {
    if (line.dots) {
      absl::StrAppendFormat(
          &body_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\"><title>%s</title></circle>\n",
          point.x, point.y, colour, EscapedForMarkup(point.what));
    }
    if (!point.marked) continue;
    Rule(point.x - 6, point.y - 6, point.x + 6, point.y + 6, kInk, 1.8);
    Rule(point.x - 6, point.y + 6, point.x + 6, point.y - 6, kInk, 1.8);
  }
}

void Svg::Title(const std::string& title, const std::string& subtitle) {
  Text(kLeftPanel, 30, title, "start", 20, " font-weight=\"600\"");
  if (!subtitle.empty()) Text(kLeftPanel, 50, subtitle, "start", 12);
}

void Svg::Footnote(const std::string& text) {
  Text(kLeftPanel, kHeight + extra_ + 14, text, "start", 10.5);
  extra_ += 26;
}

void Svg::Grow(double height) { extra_ = std::max(extra_, height); }

std::string Svg::Finish() const {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
      "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" fill=\"%s\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
      kWidth, kHeight + extra_, kWidth, kHeight + extra_, kInk, body_);
}

double PlotScale::At(double value) const {
  if (!log) return high > low ? (value - low) / (high - low) : 0.5;
  const double span = std::log(high) - std::log(low);
  return span > 0 ? (std::log(std::max(value, low)) - std::log(low)) / span : 0.5;
}

Panel::Panel(Svg* svg, PlotSide side, const std::string& title, PlotScale x, PlotScale y)
    : svg_(*svg), left_(side == PlotSide::kLeft ? kLeftPanel : kRightPanel), x_(x), y_(y) {
  svg_.Text(left_, kTop - 12, title, "start", 14, " font-weight=\"600\"");
}

double Panel::X(double value) const { return left_ + 18 + x_.At(value) * (kPanelWidth - 36); }
double Panel::Y(double value) const { return kHeight - kBottom - y_.At(value) * (kHeight - kBottom - kTop); }

void Panel::YTick(double value, const std::string& label) {
  svg_.Rule(left_, Y(value), left_ + kPanelWidth, Y(value), kGrid);
  svg_.Text(left_ - 8, Y(value) + 4, label, "end", 12);
}

void Panel::XTick(double value, const std::string& label) {
  svg_.Rule(X(value), kHeight - kBottom, X(value), kHeight - kBottom + 5, kInk);
  constexpr double kLetter = 7.4;  // wide, with the space beside it
  const double half = static_cast<double>(label.size()) * kLetter / 2;
  if (X(value) - half < free_from_) return;
  free_from_ = X(value) + half + kLetter;
  svg_.Text(X(value), kHeight - kBottom + 20, label, "middle", 12);
}

void Panel::Axes(const std::string& x_name, const std::string& y_name) {
  svg_.Rule(left_, kHeight - kBottom, left_ + kPanelWidth, kHeight - kBottom, kInk, 1.2);
  svg_.Text(left_ + kPanelWidth / 2, kHeight - kBottom + 42, x_name, "middle", 13);
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg_.Text(left_ - 62, middle, y_name, "middle", 13,
            absl::StrFormat(" transform=\"rotate(-90 %.1f %.1f)\"", left_ - 62, middle));
}

void Panel::Draw(const std::vector<PlotLine>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    PlotLine placed = lines[i];
    for (PlotPoint& point : placed.points) {
      point.x = X(point.x);
      point.y = Y(point.y);
    }
    svg_.Path(placed, ColourOf(i), DashOf(i));
  }
}

void Panel::Legend(const std::vector<PlotLine>& lines) {
  constexpr double kRow = 19;
  const size_t columns = lines.size() > 6 ? 2 : 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    const double x = left_ + static_cast<double>(i % columns) * kPanelWidth / 2;
    const double y = kHeight + 4 + static_cast<double>(i / columns) * kRow;
    svg_.Rule(x, y - 4, x + 26, y - 4, ColourOf(i), 2.6, DashOf(i));
    svg_.Text(x + 34, y, lines[i].name.empty() ? "measured" : lines[i].name, "start", 12);
    svg_.Grow(static_cast<double>(i / columns + 1) * kRow + 10);
  }
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

}  // namespace memcgd::client
