#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "lockstep/base/str.h"
#include "tools/lockstep/inspect_servers.h"

namespace lockstep::tool {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

double seconds(std::uint64_t nanoseconds) {
  return std::chrono::duration<double>(std::chrono::nanoseconds(nanoseconds)).count();
}

// One digit after the point where that says something.
std::string shown(double number) { return str(number < 100 ? std::round(number * 10) / 10 : std::round(number)); }

// "12 ms", "1.5 s"
std::string shown_time(std::uint64_t nanoseconds) {
  const auto time = seconds(nanoseconds);
  return time < 1 ? str(std::round(time * 1000), " ms") : str(shown(time), " s");
}

std::string shown_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB"};
  constexpr double kThousand = 1000;
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; number >= kThousand && unit + 1 < kUnits.size(); ++unit) number /= kThousand;
  return str(shown(number), " ", kUnits[unit]);
}

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

// From 2^(power-1) on: "0", "1", "2-3", "4-7".
std::string shown_class(std::size_t power) {
  const auto from = power == 0 ? 0 : std::uint64_t{1} << (power - 1);
  return power < 2 ? str(from) : str(from, "-", 2 * from - 1);
}

// Columns as wide as they must be, and an empty line before them.
void print_table(std::ostream& out, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column) widths[column] = std::max(widths[column], row[column].size());
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += row[column] + std::string(widths[column] - row[column].size() + 2, ' ');
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
}

// The rows of all tasks for which `row` finds something to say, if there are any; then those of this job that said nothing.
template <typename Make>
void print_tasks(std::ostream& out, const ServersView& view, const std::string& job, Row head, Make row) {
  std::vector<Row> rows = {std::move(head)};
  for (const auto& answer : view.tasks) {
    if (answer.task.type != job) continue;
    Row cells = {str(answer.task), answer.address};
    if (!answer.report) cells.insert(cells.end(), {"-", answer.why_not});
    else row(cells, *answer.report);
    rows.push_back(std::move(cells));
  }
  for (auto& cells : rows) cells.resize(rows.front().size());
  if (rows.size() == 1) return;
  out << "\n";
  print_table(out, rows);
}

void print_coordinator(std::ostream& out, const TaskAnswer& answer) {
  out << answer.task << " at " << answer.address;
  if (!answer.report || !answer.report->coordinator) {
    out << (answer.report ? " coordinates nothing" : str(" ", answer.why_not)) << "\n";
    return;
  }
  const auto& of = *answer.report->coordinator;
  out << ", process " << answer.report->pid << ": " << of.queued << " closures wait, " << of.in_flight << " are with workers, "
      << of.workers - of.missing.size() << " of " << of.workers << " workers are there";
  if (!of.missing.empty()) out << "; missing: " << join(", ", of.missing);
  out << "\n";
}

void print_staleness(std::ostream& out, const ServersView& view) {
  std::vector<std::uint64_t> counts;
  for (const auto& answer : view.tasks) {
    if (!answer.report || !answer.report->store) continue;
    const auto own = answer.report->all_variables().staleness;
    counts.resize(std::max(counts.size(), own.size()));
    for (std::size_t power = 0; power < own.size(); ++power) counts[power] += own[power];
  }
  const auto most = counts.empty() ? 0 : *std::ranges::max_element(counts);
  if (most == 0) return;
  constexpr double kWidth = 40;
  std::vector<Row> rows = {{"updates missed", "gradients", ""}};
  for (std::size_t power = 0; power < counts.size(); ++power) {
    const auto length = std::ceil(kWidth * static_cast<double>(counts[power]) / static_cast<double>(most));
    rows.push_back({shown_class(power), str(counts[power]), std::string(static_cast<std::size_t>(length), '#')});
  }
  out << "\n";
  print_table(out, rows);
}

// Replicated groups, as their servers have them.
void print_groups(std::ostream& out, const ServersView& view) {
  std::vector<Row> rows = {
      {"group", "server", "role", "epoch", "on two", "variables", "bytes", "updates/s", "updates", "reads"}};
  for (const auto& answer : view.tasks) {
    if (!answer.report) continue;
    for (const auto& group : answer.report->groups)
      if (group.role != ps::GroupRole::kNone)
        rows.push_back({str(group.group), str(answer.task), name_of(group.role), str(group.epoch),
                        group.is_on_two ? "yes" : "no", str(group.store.variables), shown_bytes(group.store.bytes),
                        shown(group.store.updates_per_second), str(group.store.updates), str(group.store.reads)});
  }
  if (rows.size() == 1) return;
  std::ranges::stable_sort(rows.begin() + 1, rows.end(), {}, [](const Row& row) { return std::pair(row[0].size(), row[0]); });
  out << "\n";
  print_table(out, rows);
}

void print_variables(std::ostream& out, const TaskAnswer& answer) {
  std::vector<Row> rows = {{"variable", "shape", "first row", "bytes", "optimizer", "version"}};
  const auto add = [&](const std::vector<ps::Described>& variables, const std::string& role) {
    for (const auto& variable : variables) {
      rows.push_back({cut(variable.description.name, 48), str("[", join(", ", variable.description.shape), "]"),
                      str(variable.description.first_row), shown_bytes(variable.bytes), shown_bytes(variable.state_bytes),
                      str(variable.version)});
      if (!answer.group_variables.empty()) rows.back().push_back(role);
    }
  };
  if (!answer.group_variables.empty()) rows[0].push_back("group");
  add(answer.variables, "");
  for (std::size_t i = 0; i < answer.group_variables.size(); ++i) {
    const auto& group = answer.report->groups[i];
    add(answer.group_variables[i], str(group.group, ", ", name_of(group.role)));
  }
  if (rows.size() == 1) return;
  out << "\n";
  print_table(out, rows);
}

Json to_json(const ps::StoreStatistics& store) {
  return {{"variables", store.variables},
          {"bytes", store.bytes},
          {"staged_bytes", store.staged_bytes},
          {"updates", store.updates},
          {"updates_per_second", store.updates_per_second},
          {"reads", store.reads},
          {"requests", store.requests},
          {"clients", store.clients},
          {"staleness", store.staleness}};
}

Json to_json(const std::vector<ps::Described>& variables) {
  auto json = Json::array();
  for (const auto& variable : variables)
    json.push_back({{"name", variable.description.name},
                    {"shape", variable.description.shape},
                    {"first_row", variable.description.first_row},
                    {"bytes", variable.bytes},
                    {"optimizer_bytes", variable.state_bytes},
                    {"version", variable.version}});
  return json;
}

Json to_json(const ps::GroupReport& group) {
  return {{"group", group.group},
          {"role", name_of(group.role)},
          {"epoch", group.epoch},
          {"is_on_two", group.is_on_two},
          {"store", to_json(group.store)}};
}

Json to_json(const TaskAnswer& answer) {
  Json json = {{"task", str(answer.task)}, {"address", answer.address}, {"answers", answer.report.has_value()}};
  if (!answer.report) {
    json["why_not"] = answer.why_not;
    return json;
  }
  json["pid"] = answer.report->pid;
  if (const auto& store = answer.report->store) json["store"] = to_json(*store);
  if (const auto& worker = answer.report->worker)
    json["worker"] = {{"closure", worker->function},  {"closure_seconds", seconds(worker->nanoseconds)},
                      {"finished", worker->finished}, {"failed", worker->failed},
                      {"waiting", worker->waiting},   {"per_worker_values", worker->resources}};
  if (const auto& of = answer.report->coordinator)
    json["coordinator"] = {
        {"queued", of->queued}, {"in_flight", of->in_flight}, {"workers", of->workers}, {"missing", of->missing}};
  for (const auto& group : answer.report->groups) json["groups"].push_back(to_json(group));
  for (std::size_t i = 0; i < answer.group_variables.size(); ++i)
    json["groups"][i]["variables"] = to_json(answer.group_variables[i]);
  if (!answer.variables.empty()) json["variables"] = to_json(answer.variables);
  return json;
}

}  // namespace

void print_servers(std::ostream& out, const ServersView& view, bool as_json) {
  if (as_json) {
    Json json = {{"tasks", Json::array()}};
    for (const auto& answer : view.tasks) json["tasks"].push_back(to_json(answer));
    out << json.dump(2) << "\n";
    return;
  }
  for (const auto& answer : view.tasks)
    if (answer.task.type != "ps" && answer.task.type != "worker") print_coordinator(out, answer);
  print_tasks(out, view, "ps",
              {"server", "address", "process", "variables", "bytes", "updates/s", "updates", "reads", "requests", "clients"},
              [](Row& cells, const ps::TaskReport& report) {
                const auto of = report.all_variables();
                cells.insert(cells.end(),
                             {str(report.pid), str(of.variables), shown_bytes(of.bytes), shown(of.updates_per_second),
                              str(of.updates), str(of.reads), str(of.requests), str(of.clients)});
              });
  print_tasks(out, view, "worker", {"worker", "address", "process", "done", "failed", "waiting", "values", "for", "closure"},
              [](Row& cells, const ps::TaskReport& report) {
                const auto of = report.worker.value_or(ps::closures::Status());
                const bool is_busy = !of.function.empty();
                cells.insert(cells.end(),
                             {str(report.pid), str(of.finished), str(of.failed), str(of.waiting), str(of.resources),
                              is_busy ? shown_time(of.nanoseconds) : "-", is_busy ? cut(of.function, 60) : "none"});
              });
  print_groups(out, view);
  for (const auto& answer : view.tasks) print_variables(out, answer);
  print_staleness(out, view);
}

}  // namespace lockstep::tool
