#include "tools/lockstep/flight.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

constexpr std::uint64_t kUnnumbered = std::uint64_t{1} << 62;  // waits that other tasks need not have

std::vector<std::filesystem::path> files_of(const std::string& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    std::filesystem::directory_iterator entries(path, error);
    if (error) throw Error(ErrorCode::kFailedPrecondition, str("the folder '", path, "' cannot be read: ", error.message()));
    for (const auto& entry : entries) {
      const auto name = entry.path().filename().string();
      if (name.rfind("flight-", 0) == 0 && entry.path().extension() == ".jsonl") files.push_back(entry.path());
    }
  } else if (std::filesystem::exists(path, error)) {
    files.emplace_back(path);
  }
  std::ranges::sort(files);
  if (files.empty())
    throw Error(ErrorCode::kNotFound, str("there is no flight record in '", path,
                                          "'; give a HOST:PORT, or the folder that LOCKSTEP_FLIGHT_DIR named"));
  return files;
}

FlightCall call_of(const nlohmann::json& line) {
  FlightCall call;
  call.number = line.at("number").get<std::uint64_t>();
  call.step = line.at("step").get<std::uint64_t>();
  call.call = line.at("call").get<std::string>();
  call.begun = line.at("begun").get<double>();
  call.seconds = line.value("seconds", -1.0);
  call.error = line.value("error", "");
  return call;
}

// The last numbered one; null: there is none.
const FlightCall* last_of(const std::vector<FlightCall>& calls) {
  for (auto call = calls.rbegin(); call != calls.rend(); ++call)
    if (call->number < kUnnumbered) return &*call;
  return nullptr;
}

std::string state_of(const FlightCall& call) {
  if (call.seconds < 0) return "still in it";
  return call.error.empty() ? "left it well" : str("failed: ", call.error);
}

std::string verdict(const FlightRecords& records) {
  std::uint64_t most = 0;
  for (const auto& [task, calls] : records.tasks)
    if (const auto* last = last_of(calls)) most = std::max(most, last->number);
  std::vector<std::string> behind;
  for (const auto& [task, calls] : records.tasks) {
    const auto* last = last_of(calls);
    if (last == nullptr || last->number < most) behind.push_back(str(task, " (at #", last == nullptr ? 0 : last->number, ")"));
  }
  if (!behind.empty()) return str("behind, of #", most, ": ", join(", ", behind));
  if (!records.unread.empty())
    return str("the tasks whose records could be read were at #", most, "; the others are not known");
  return str("all that wrote a record were at #", most, "; a task without one is the one to look for");
}

// A task that is killed while it writes leaves half a line: what stands before it is good.
void read_record(const std::filesystem::path& file, FlightRecords& records) {
  std::error_code error;
  std::ifstream in;
  if (std::filesystem::is_regular_file(file, error)) in.open(file);
  if (!in.is_open()) return records.unread.push_back(str(file.string(), ": it cannot be opened as a file"));
  std::string text;
  int number = 1;
  try {
    for (; std::getline(in, text); ++number) {
      const auto line = nlohmann::json::parse(text);
      records.tasks[line.at("task").get<std::string>()].push_back(call_of(line));
    }
    if (number == 1) records.unread.push_back(str(file.string(), ": it is empty"));
  } catch (const nlohmann::json::exception& problem) {
    records.unread.push_back(str(file.string(), ", line ", number, ": ", problem.what()));
  }
}

}  // namespace

FlightRecords read_flight_records(const std::string& path) {
  FlightRecords records;
  for (const auto& file : files_of(path)) read_record(file, records);
  if (records.tasks.empty()) throw Error(ErrorCode::kDataLoss, join("\n", records.unread));
  return records;
}

void print_flight(std::ostream& out, const FlightRecords& records, bool as_json) {
  if (as_json) {
    nlohmann::ordered_json json = {
        {"tasks", nlohmann::ordered_json::array()}, {"unread", records.unread}, {"verdict", verdict(records)}};
    for (const auto& [task, calls] : records.tasks)
      if (const auto* last = last_of(calls))
        json["tasks"].push_back({{"task", task},
                                 {"number", last->number},
                                 {"step", last->step},
                                 {"call", last->call},
                                 {"begun", last->begun},
                                 {"state", state_of(*last)},
                                 {"calls", calls.size()}});
    out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  constexpr int kTask = 14;
  constexpr int kNumber = 10;
  out << std::left << std::setw(kTask) << "task" << std::setw(kNumber) << "call" << std::setw(kNumber) << "step"
      << "what\n";
  for (const auto& [task, calls] : records.tasks)
    if (const auto* last = last_of(calls))
      out << std::setw(kTask) << task << std::setw(kNumber) << str("#", last->number) << std::setw(kNumber) << last->step
          << last->call << "; " << state_of(*last) << "\n";
  for (const auto& problem : records.unread) out << "not read: " << problem << "\n";
  out << verdict(records) << "\n";
}

}  // namespace lockstep::tool
