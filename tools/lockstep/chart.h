#pragma once

#include <string>
#include <vector>

#include "tools/lockstep/run_logs.h"

namespace lockstep::tool {

// Round numbers (1, 2, 2.5 or 5 times a power of ten) from the last at or below `low` to the first at or above `high`, about
// `count` of them.
std::vector<double> round_ticks(double low, double high, int count);

// A number as an axis shows it: "0.25", "1200", "15k", "2M", "1e-05".
std::string tick_text(double value);
// With as many digits as tell something.
std::string value_text(double value);

// What may stand in HTML, in text and in quoted attributes.
std::string html(const std::string& text);

// At most about `most` points that look the same: the ends, and the lowest and highest of each stretch.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most);

// The course of many points: at a hundred places the mean of those around.
std::vector<Point> smoothed(const std::vector<Point>& points);

// The chart as a <figure> with a legend and an <svg>. `number` is its place in the page's data, which the script uses.
// `runs`: all of the page. Where there are several, colours tell them apart and dashes tell validation; else colours do too.
std::string draw_chart(const Chart& chart, std::size_t number, const std::vector<std::string>& runs);

// What the script needs to show values: JSON.
std::string chart_data(const Chart& chart, const std::vector<std::string>& runs);

}  // namespace lockstep::tool
