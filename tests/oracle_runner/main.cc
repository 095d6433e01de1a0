#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/oracle_runner/case.h"
#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/worker_pool.h"

// oracle_test [--json]: runs every case of every *.json in LOCKSTEP_ORACLE (default: tests/oracle).

#ifndef LOCKSTEP_SOURCE_DIR
#define LOCKSTEP_SOURCE_DIR "."
#endif

namespace lockstep::oracle {
namespace {

struct Line {
  std::string file;
  std::string name;  // empty: the file itself
  Verdict verdict;
};

const std::map<Status, const char*> kStatusNames = {{Status::kPassed, "passed"},
                                                    {Status::kFailed, "failed"},
                                                    {Status::kDiffers, "differs on purpose"},
                                                    {Status::kNotApplicable, "not applicable"}};

Case to_case(const std::string& file, const Json& json) {
  Case one{file, json.at("name").get<std::string>(), json.at("input")};
  for (const char* key : {"expect", "error"})
    if (json.contains(key)) one.outcome[key] = json[key];
  if (one.outcome.size() != 1) throw std::runtime_error("a case needs either \"expect\" or \"error\"");
  if (one.asked().is_object() && one.asked().contains("balanced")) {
    one.balanced = one.asked()["balanced"];
    one.outcome["expect"].erase("balanced");
  }
  return one;
}

Line run_case(const Suite& suite, const Json& json) {
  const bool is_named = json.is_object() && json.contains("name") && json["name"].is_string();
  const auto name = is_named ? json["name"].get<std::string>() : "?";
  try {
    return {suite.file, name, judge(suite, to_case(suite.file, json))};
  } catch (const std::exception& error) {
    return {suite.file, name, {Status::kFailed, std::string("the case cannot be read: ") + error.what()}};
  }
}

std::vector<Line> run_file(const std::filesystem::path& path) {
  const auto file = path.stem().string();
  std::vector<Line> lines;
  try {
    std::ifstream in(path);
    const auto content = Json::parse(in);
    const auto suite = suite_of(file);
    for (const auto& json : content.at("cases")) lines.push_back(run_case(suite, json));
  } catch (const std::exception& error) {
    lines.push_back({file, "", {Status::kFailed, std::string("the file cannot be read: ") + error.what()}});
  }
  return lines;
}

std::vector<Line> run_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  std::ranges::sort(paths);
  if (paths.empty()) return {{folder.string(), "", {Status::kFailed, "there are no *.json files in this folder"}}};
  std::vector<Line> lines;
  for (const auto& path : paths) std::ranges::move(run_file(path), std::back_inserter(lines));
  return lines;
}

std::string summary(const std::vector<Line>& lines) {
  std::map<Status, int> count;
  for (const auto& line : lines) ++count[line.verdict.status];
  return std::to_string(count[Status::kPassed]) + " passed, " + std::to_string(count[Status::kFailed]) + " failed, " +
         std::to_string(count[Status::kDiffers]) + " differ on purpose, " + std::to_string(count[Status::kNotApplicable]) +
         " not applicable";
}

void print_text(const std::vector<Line>& lines) {
  std::map<std::string, std::vector<Line>> by_file;
  for (const auto& line : lines) {
    by_file[line.file].push_back(line);
    if (line.verdict.status == Status::kFailed)
      std::cout << "FAIL " << line.file << (line.name.empty() ? "" : "#") << line.name << ": " << line.verdict.reason << "\n";
  }
  for (const auto& [file, its] : by_file) std::cout << "  " << file << ": " << summary(its) << "\n";
  std::cout << "oracle: " << summary(lines) << std::endl;
}

// The list alone on stdout, so that it can be parsed.
void print_json(const std::vector<Line>& lines) {
  Json list = Json::array();
  for (const auto& line : lines)
    list.push_back({{"file", line.file},
                    {"case", line.name},
                    {"status", kStatusNames.at(line.verdict.status)},
                    {"reason", line.verdict.reason}});
  std::cout << list.dump(1, ' ', false, Json::error_handler_t::replace) << std::endl;
  std::cerr << "oracle: " << summary(lines) << std::endl;
}

}  // namespace
}  // namespace lockstep::oracle

int main(int argc, char** argv) {
  using namespace lockstep::oracle;
  if (argc == 2 && std::string(argv[1]) == "--worker") return serve_as_worker();  // asked for by this program itself
  const bool is_json = argc == 2 && std::string(argv[1]) == "--json";
  if (argc > 1 && !is_json) {
    std::cerr << "usage: oracle_test [--json]\n";
    return 2;
  }
  const auto lines = run_folder(oracle_folder());
  is_json ? print_json(lines) : print_text(lines);
  return std::ranges::any_of(lines, [](const Line& line) { return line.verdict.status == Status::kFailed; }) ? 1 : 0;
}
