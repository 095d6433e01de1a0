#include "tools/lockstep/findings.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kVerdicts = {"ok", "warning", "FAILED"};
constexpr int kVerdictWidth = 9;

const char* name_of(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }

Json to_json(const std::vector<Finding>& findings) {
  auto list = Json::array();
  for (const auto& finding : findings)
    list.push_back({{"check", finding.check},
                    {"who", finding.who},
                    {"verdict", name_of(finding.verdict)},
                    {"found", finding.found},
                    {"fix", finding.fix},
                    {"badness", finding.badness}});
  return list;
}

// Text from other machines may be no UTF-8.
std::string dump(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

Verdict verdict_from(const std::string& name) {
  const auto found = std::ranges::find(kVerdicts, name);
  if (found == kVerdicts.end()) throw Error(ErrorCode::kDataLoss, str("'", name, "' is no verdict"));
  return static_cast<Verdict>(found - kVerdicts.begin());
}

// The good findings of one check as one.
Finding summary_of(const std::vector<const Finding*>& good) {
  auto line = **std::ranges::max_element(good, {}, [](const Finding* finding) { return finding->badness; });
  if (good.size() == 1) return line;
  const bool are_equal = std::ranges::all_of(good, [&](const Finding* finding) { return finding->found == line.found; });
  if (!are_equal) line.found = str(line.badness > 0 ? "at worst " : "", line.found, " (", line.who, ")");
  line.who = str("all ", good.size());
  return line;
}

std::vector<Finding> lines_of(const std::vector<Finding>& findings) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Finding*>> good;
  std::map<std::string, std::vector<Finding>> bad;
  for (const auto& finding : findings) {
    if (std::ranges::count(order, finding.check) == 0) order.push_back(finding.check);
    if (finding.verdict == Verdict::kOk) good[finding.check].push_back(&finding);
    else bad[finding.check].push_back(finding);
  }
  std::vector<Finding> lines;
  for (const auto& check : order) {
    if (good.count(check) > 0) lines.push_back(summary_of(good.at(check)));
    lines.insert(lines.end(), bad[check].begin(), bad[check].end());
  }
  return lines;
}

}  // namespace

std::string to_text(const std::vector<Finding>& findings) { return dump(to_json(findings), -1); }

std::vector<Finding> findings_from(const std::string& text) {
  try {
    std::vector<Finding> findings;
    for (const auto& item : Json::parse(text))
      findings.push_back({item.at("check"), item.at("who"), verdict_from(item.at("verdict")), item.at("found"), item.at("fix"),
                          item.at("badness")});
    return findings;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kDataLoss, str("a task's findings cannot be read (", error.what(), ")"));
  }
}

bool has_failed(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& finding) { return finding.verdict == Verdict::kFailed; });
}

void print_findings(std::ostream& out, const std::vector<Finding>& findings, bool as_json) {
  if (as_json) {
    out << dump({{"good", !has_failed(findings)}, {"findings", to_json(findings)}}, 2) << "\n";
    return;
  }
  const auto lines = lines_of(findings);
  std::size_t check_width = 0;
  std::size_t who_width = 0;
  for (const auto& line : lines) {
    check_width = std::max(check_width, line.check.size() + 2);
    who_width = std::max(who_width, line.who.size() + 2);
  }
  for (const auto& line : lines) {
    out << std::left << std::setw(kVerdictWidth) << name_of(line.verdict) << std::setw(static_cast<int>(check_width))
        << line.check << std::setw(static_cast<int>(who_width)) << line.who << line.found << "\n";
    if (!line.fix.empty())
      out << std::setw(kVerdictWidth) << ""
          << "fix: " << line.fix << "\n";
  }
}

}  // namespace lockstep::tool
