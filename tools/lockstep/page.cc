#include "tools/lockstep/page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "lockstep/base/str.h"
#include "tools/lockstep/chart.h"
#include "tools/lockstep/page_parts.h"

namespace lockstep::tool {
namespace {

std::string duration(double seconds) {
  if (seconds < 1) return str(value_text(std::round(seconds * 1e5) / 100), " ms");
  if (seconds < 100) return str(value_text(std::round(seconds * 10) / 10), " s");
  const auto whole = std::llround(seconds);
  if (whole < 3600) return str(whole / 60, " min ", whole % 60, " s");
  return str(whole / 3600, " h ", whole / 60 % 60, " min");
}

std::string moment(double wall_time) {
  const auto seconds = static_cast<std::time_t>(wall_time);
  std::tm parts = {};
  std::array<char, 32> buffer{};
  gmtime_r(&seconds, &parts);
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return buffer.data();
}

std::string head_of(const RunLogs& logs, const std::string& folder) {
  std::string text = str("<h1>Training report</h1><p class=\"soft\">", html(folder), "</p>");
  for (const auto& run : logs.runs) {
    const double seconds = run.last_wall_time - run.first_wall_time;
    text += str("<p>", html(run.name));
    if (run.first_wall_time > 0)
      text += str(" <span class=\"soft\">began ", moment(run.first_wall_time), ", events over ", duration(seconds), "</span>");
    text += "</p>";
  }
  for (const auto& file : logs.cut_files)
    text += str("<p class=\"note\">", html(file), " is not whole: it is still being written, or its writer was killed.</p>");
  return text;
}

std::string bar_of(int worker, const WorkerTime& time, double longest) {
  constexpr double kRoomForText = 9;  // percent
  const double total = time.times.total();
  auto text = str("<div>worker ", worker, " <span class=\"soft\">", duration(total));
  if (time.steps > 0) text += str(", ", value_text(time.steps), " steps of ", duration(total / time.steps));
  text += "</span></div><div class=\"bar\">";
  for (std::size_t p = 0; p < kStepPhases; ++p) {
    const double part = longest > 0 ? 100 * time.times.seconds[p] / longest : 0;
    if (!(part > 0)) continue;
    const auto name = name_of(static_cast<StepPhase>(p));
    const auto percent = str(std::lround(100 * time.times.seconds[p] / total), " %");
    text += str("<div class=\"", name, "\" style=\"width:", value_text(part), "%\" title=\"", name, ": ",
                duration(time.times.seconds[p]), ", ", percent, "\">", part >= kRoomForText ? percent : "", "</div>");
  }
  return text + "</div>";
}

std::string breakdown_of(const RunLogs& logs) {
  std::string text;
  for (const auto& run : logs.runs) {
    if (run.workers.empty()) continue;
    double longest = 0;
    for (const auto& [rank, time] : run.workers) longest = std::max(longest, time.times.total());
    text += str("<h3>", html(run.name), "</h3>");
    for (const auto& [rank, time] : run.workers) text += bar_of(rank, time, longest);
    for (const auto& line : run.stragglers) text += str("<p class=\"late\">", html(line), "</p>");
  }
  if (text.empty()) return text;
  std::string legend;
  for (std::size_t p = 0; p < kStepPhases; ++p) {
    const auto name = name_of(static_cast<StepPhase>(p));
    legend += str("<li><span class=\"swatch ", name, "\"></span>", name, "</li>");
  }
  return str("<section><h2>Where the time went</h2><ul class=\"legend\">", legend, "</ul>", text, "</section>\n");
}

std::string table_of(const RunLogs& logs) {
  std::string rows;
  for (const auto& chart : logs.charts)
    for (const auto& curve : chart.curves) {
      if (curve.points.empty()) continue;
      const auto [low, high] = std::ranges::minmax_element(curve.points, {}, &Point::y);
      const auto at = [&](const Point& point) {
        return str("<td>", value_text(point.y), "<span class=\"soft\"> at ", std::lround(point.x), "</span></td>");
      };
      rows += str("<tr><td>", html(chart.title), "</td><td>", html(curve.run), curve.is_validation ? ", validation" : "",
                  "</td>", at(curve.points.back()), at(*low), at(*high), "<td>", curve.points.size(), "</td></tr>\n");
    }
  return str(
      "<section><h2>Values</h2><div class=\"wide\"><table><thead><tr><th>what</th><th>run</th><th>last</th>"
      "<th>lowest</th><th>highest</th><th>points</th></tr></thead><tbody>\n",
      rows, "</tbody></table></div></section>\n");
}

// JSON inside a script element must not end it.
std::string inside_script(const std::string& json) {
  std::string result;
  for (const char c : json) {
    if (c == '<') result += "\\u003c";
    else result += c;
  }
  return result;
}

}  // namespace

std::string report_page(const RunLogs& logs, const std::string& folder) {
  std::vector<std::string> runs;
  for (const auto& run : logs.runs) runs.push_back(run.name);
  std::string figures;
  std::vector<std::string> data;
  for (const auto& chart : logs.charts) {
    figures += draw_chart(chart, data.size(), runs);
    data.push_back(chart_data(chart, runs));
  }
  const auto curves = logs.charts.empty()
                          ? str("<p>The logs hold no scalars: there is nothing to draw.</p>")
                          : str("<section><h2>Curves</h2><div class=\"charts\">\n", figures, "</div></section>\n");
  return str(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<link rel=\"icon\" href=\"data:,\"><title>Training report: ",
      html(folder), "</title><style>", kReportStyle, "</style></head><body>\n<main>", head_of(logs, folder), curves,
      breakdown_of(logs), logs.charts.empty() ? "" : table_of(logs), "</main>\n<script type=\"application/json\" id=\"data\">[",
      inside_script(join(",\n", data)), "]</script>\n<script>", kReportScript, "</script></body></html>\n");
}

}  // namespace lockstep::tool
