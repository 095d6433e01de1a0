#include "tools/lockstep/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

// In the units of the drawing, which is as wide as its place on the page.
constexpr double kWidth = 400;
constexpr double kHeight = 250;
constexpr double kLeft = 58;
constexpr double kRight = 390;
constexpr double kTop = 10;
constexpr double kBottom = 212;
constexpr std::size_t kMostPoints = 400;
constexpr std::size_t kMostDots = 40;
constexpr std::size_t kColours = 7;

std::string place(double value) { return shown(value, std::chars_format::fixed, 1); }

struct Range {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

struct Axes {
  std::vector<double> x_ticks;
  std::vector<double> y_ticks;
  Range x;

  double x_at(double value) const {
    return x.high > x.low ? kLeft + (value - x.low) / (x.high - x.low) * (kRight - kLeft) : (kLeft + kRight) / 2;
  }
  double y_at(double value) const {
    return kBottom - (value - y_ticks.front()) / (y_ticks.back() - y_ticks.front()) * (kBottom - kTop);
  }
};

Axes axes_of(const Chart& chart) {
  Range x;
  Range y;
  for (const auto& curve : chart.curves)
    for (const auto& point : curve.points) {
      x.add(point.x);
      y.add(point.y);
    }
  if (x.is_empty()) x = y = {0, 1};
  Axes axes{{}, round_ticks(y.low, y.high, 5), x};
  // Steps and epochs are whole numbers.
  for (const double tick : round_ticks(x.low, x.high, 6))
    if (tick >= x.low && tick <= x.high && tick == std::round(tick)) axes.x_ticks.push_back(tick);
  if (axes.x_ticks.empty()) axes.x_ticks = {x.low};
  return axes;
}

std::string grid_of(const Axes& axes, const std::string& x_name) {
  std::string svg = "<g class=\"grid\">";
  for (const double tick : axes.y_ticks) {
    const auto y = place(axes.y_at(tick));
    svg += str("<line x1=\"", kLeft, "\" x2=\"", kRight, "\" y1=\"", y, "\" y2=\"", y, "\"/>");
    svg += str("<text x=\"", kLeft - 6, "\" y=\"", y, "\" dy=\".35em\" text-anchor=\"end\">", tick_text(tick), "</text>");
  }
  for (const double tick : axes.x_ticks) {
    const auto x = place(axes.x_at(tick));
    svg += str("<line x1=\"", x, "\" x2=\"", x, "\" y1=\"", kBottom, "\" y2=\"", kBottom + 4, "\"/>");
    svg += str("<text x=\"", x, "\" y=\"", kBottom + 17, "\" text-anchor=\"middle\">", tick_text(tick), "</text>");
  }
  return svg + str("<text x=\"", (kLeft + kRight) / 2, "\" y=\"", kHeight - 6, "\" text-anchor=\"middle\">", html(x_name),
                   "</text></g>");
}

// How a curve looks, and what it is called.
struct Style {
  std::string label;
  std::string classes;
};

Style style_of(const Curve& curve, const std::vector<std::string>& runs) {
  const auto run = static_cast<std::size_t>(std::ranges::find(runs, curve.run) - runs.begin());
  const std::string part = curve.is_validation ? "validation" : "train";
  const bool is_only = runs.size() == 1;
  const auto colour = is_only ? (curve.is_validation ? 1 : 0) : run % kColours;
  return {is_only ? part : str(curve.run, curve.is_validation ? " (validation)" : ""),
          str("c", colour, curve.is_validation ? " dash" : "")};
}

std::string path_of(const std::vector<Point>& points, const Axes& axes) {
  std::string path;
  for (const auto& point : points)
    path += str(path.empty() ? "M" : "L", place(axes.x_at(point.x)), " ", place(axes.y_at(point.y)));
  return path;
}

// Goes up and down so often that its course is hard to see.
bool is_rough(const std::vector<Point>& points) {
  constexpr std::size_t kMany = 150;
  constexpr double kManyTimes = 8;
  if (points.size() <= kMany) return false;
  Range range;
  double way = 0;
  for (std::size_t k = 0; k < points.size(); ++k) {
    range.add(points[k].y);
    way += k == 0 ? 0 : std::abs(points[k].y - points[k - 1].y);
  }
  return way > kManyTimes * (range.high - range.low);
}

// Few points are dots on a line; rough ones are a pale line with their course over it.
std::string line_of(const std::vector<Point>& points, const Axes& axes, const std::string& classes) {
  const auto shown = thinned(points, kMostPoints);
  std::string marks;
  const bool is_pale = is_rough(points);
  if (is_pale) marks = str("<path d=\"", path_of(smoothed(points), axes), "\"/>");
  else if (points.size() <= kMostDots)
    for (const auto& point : shown)
      marks += str("<circle cx=\"", place(axes.x_at(point.x)), "\" cy=\"", place(axes.y_at(point.y)), "\" r=\"2.4\"/>");
  return str("<g class=\"curve ", classes, "\"><path", is_pale ? " class=\"raw\"" : "", " d=\"", path_of(shown, axes), "\"/>",
             marks, "</g>");
}

std::string legend_of(const Chart& chart, const std::vector<std::string>& runs) {
  std::string items;
  for (const auto& curve : chart.curves) {
    const auto style = style_of(curve, runs);
    items += str("<li><svg class=\"key\" viewBox=\"0 0 22 8\" aria-hidden=\"true\"><g class=\"curve ", style.classes,
                 "\"><path d=\"M0 4L22 4\"/></g></svg>", html(style.label), " <b>",
                 curve.points.empty() ? "no finite value" : value_text(curve.points.back().y), "</b></li>");
  }
  return str("<ul class=\"legend\">", items, "</ul>");
}

std::string description_of(const Chart& chart, const std::vector<std::string>& runs) {
  std::vector<std::string> parts;
  for (const auto& curve : chart.curves)
    if (!curve.points.empty())
      parts.push_back(str(style_of(curve, runs).label, " from ", value_text(curve.points.front().y), " to ",
                          value_text(curve.points.back().y)));
  return str(chart.title, " by ", chart.x_name, ": ", join("; ", parts));
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low)) {
    const double around = low == 0 ? 1 : std::abs(low) / 2;
    low -= around;
    high += around;
  }
  const double wanted = (high - low) / std::max(count - 1, 1);
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * power >= wanted * 0.999) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const auto first = std::floor(low / step + 1e-9);
  const auto last = std::ceil(high / step - 1e-9);
  // Multiplied, not added up: 0.3, not 0.30000000000000004. A negative power of ten is not exact, its inverse is.
  const double inverse = std::round(1 / step);
  for (double k = first; k <= last && ticks.size() < 100; ++k)
    ticks.push_back(step < 1 && inverse < 1e15 ? k / inverse : k * step);
  if (ticks.size() < 2) ticks = {low, high};
  return ticks;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e12 || (size > 0 && size < 1e-4)) return shown(value, std::chars_format::general, 3);
  for (const auto& [unit, letter] : {std::pair(1e9, "G"), {1e6, "M"}, {1e4, "k"}})
    if (size >= unit) return value_text(value / (unit == 1e4 ? 1e3 : unit)) + letter;
  return value_text(value);
}

std::string value_text(double value) { return shown(value, std::chars_format::general, 5); }

std::string html(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
  if (points.size() <= most || most < 4) return points;
  const auto stretches = most / 2;
  std::vector<Point> kept = {points.front()};
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(s * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((s + 1) * points.size() / stretches);
    auto [low, high] = std::ranges::minmax_element(begin, end, {}, &Point::y);
    if (high < low) std::swap(low, high);
    for (const auto it : {low, high})
      if (it->x > kept.back().x) kept.push_back(*it);
  }
  if (points.back().x > kept.back().x) kept.push_back(points.back());
  return kept;
}

std::vector<Point> smoothed(const std::vector<Point>& points) {
  constexpr std::size_t kPlaces = 100;
  if (points.size() <= kPlaces) return points;
  const auto around = points.size() / kPlaces;
  std::vector<Point> course;
  for (std::size_t k = 0; k <= kPlaces; ++k) {
    const auto at = k * (points.size() - 1) / kPlaces;
    const auto begin = at - std::min(at, around);
    const auto end = std::min(at + around + 1, points.size());
    double sum = 0;
    for (auto i = begin; i < end; ++i) sum += points[i].y;
    course.push_back({points[at].x, sum / static_cast<double>(end - begin)});
  }
  return course;
}

std::string draw_chart(const Chart& chart, std::size_t number, const std::vector<std::string>& runs) {
  const auto axes = axes_of(chart);
  std::string curves;
  std::int64_t not_finite = 0;
  for (const auto& curve : chart.curves) {
    curves += line_of(curve.points, axes, style_of(curve, runs).classes);
    not_finite += curve.not_finite;
  }
  const auto note =
      not_finite == 0 ? ""
                      : str("<p class=\"note\">", not_finite, not_finite == 1 ? " value is" : " values are", " not finite</p>");
  return str("<figure><figcaption>", html(chart.title), "</figcaption>", legend_of(chart, runs),
             "<div class=\"plot\"><svg class=\"chart\" data-chart=\"", number, "\" viewBox=\"0 0 ", kWidth, " ", kHeight,
             "\" tabindex=\"0\" role=\"img\" aria-label=\"", html(description_of(chart, runs)), "\">",
             grid_of(axes, chart.x_name), curves, "<line class=\"guide\" y1=\"", kTop, "\" y2=\"", kBottom, "\"/></svg></div>",
             note, "</figure>\n");
}

std::string chart_data(const Chart& chart, const std::vector<std::string>& runs) {
  const auto axes = axes_of(chart);
  nlohmann::ordered_json json = {{"x", chart.x_name}, {"curves", nlohmann::ordered_json::array()}};
  for (const auto& curve : chart.curves) {
    const auto style = style_of(curve, runs);
    auto points = nlohmann::ordered_json::array();
    for (const auto& point : thinned(curve.points, kMostPoints))
      points.push_back(
          {point.x, value_text(point.y), std::stod(place(axes.x_at(point.x))), std::stod(place(axes.y_at(point.y)))});
    json["curves"].push_back({{"label", style.label}, {"classes", style.classes}, {"points", std::move(points)}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::tool
