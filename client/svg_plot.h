// Drawings as SVG: two panels side by side, with axes, lines and a legend each.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_SVG_PLOT_H_
#define MEMCGD_CLIENT_SVG_PLOT_H_

#include <cstddef>
#include <string>
#include <vector>

namespace memcgd::client {

struct PlotPoint {
  double x = 0, y = 0;
  std::string what;     // shown when pointed at
  bool marked = false;  // with a cross
};
struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;
  bool dots = true;  // at the points
};

class Svg {
 public:
  void Text(double x, double y, const std::string& text, const char* anchor, double size,
            const std::string& more = "");
  void Rule(double x1, double y1, double x2, double y2, const char* colour, double width = 1,
            const std::string& dash = "");
  void Path(const PlotLine& line, const char* colour, const std::string& dash);
  // In large letters above the panels, and a line in small ones below it.
  void Title(const std::string& title, const std::string& subtitle = "");
  // In small letters below all else.
  void Footnote(const std::string& text);
  // The drawing reaches that far below the panels.
  void Grow(double height);
  std::string Finish() const;

 private:
  std::string body_;
  double extra_ = 0;
};

// An axis: values into 0 … 1.
struct PlotScale {
  double low = 0, high = 1;
  bool log = false;
  double At(double value) const;
};

enum class PlotSide { kLeft, kRight };

class Panel {
 public:
  Panel(Svg* svg, PlotSide side, const std::string& title, PlotScale x, PlotScale y);

  void YTick(double value, const std::string& label);
  // In ascending order; a label that would touch the one before it is left out.
  void XTick(double value, const std::string& label);
  void Axes(const std::string& x_name, const std::string& y_name);
  // Lines get their colours by their order.
  void Draw(const std::vector<PlotLine>& lines);
  // Below the panel, in two columns where there are many.
  void Legend(const std::vector<PlotLine>& lines);

 private:
  double X(double value) const;
  double Y(double value) const;

  Svg& svg_;
  const double left_;
  const PlotScale x_, y_;
  double free_from_ = 0;  // where the next label of the x axis may begin
};

// 1500000 → "1.5 M"; bytes in KiB, MiB …; microseconds in µs, ms or s.
std::string ShortNumber(double value);
std::string ShortBytes(double value);
std::string ShortTime(double us);

// 0 and steps of 1, 2 or 5 × 10^n up to at least `top`, six at most.
std::vector<double> NiceTicks(double top);
// 1, 2 and 5 × 10^n around the values; powers of ten alone where those would be many.
std::vector<double> LogTicks(double low, double high);

// &, < and > as SVG and HTML want them.
std::string EscapedForMarkup(const std::string& text);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_SVG_PLOT_H_
