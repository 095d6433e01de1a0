#include "lockstep/train/logs.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_unknown(const std::string& name, const std::vector<std::string>& there) {
  throw Error(ErrorCode::kInvalidArgument,
              str("logs: there is no '", name, "'; there are: ", there.empty() ? "none" : join(", ", there)));
}

}  // namespace

std::optional<double> Logs::find(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

double Logs::at(const std::string& name) const {
  if (const auto value = find(name)) return *value;
  std::vector<std::string> names;
  for (const auto& [other, value] : entries_) names.push_back(other);
  throw_unknown(name, names);
}

void Logs::set(const std::string& name, double value) {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  if (found == entries_.end()) entries_.emplace_back(name, value);
  else found->second = value;
}

void Logs::add(const Logs& other, const std::string& prefix) {
  for (const auto& [name, value] : other) set(prefix + name, value);
}

std::string show(const Logs& logs) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : logs) {
    const bool is_small = value != 0 && std::abs(value) < 1e-3;
    parts.push_back(name + ": " + shown(value, is_small ? std::chars_format::scientific : std::chars_format::fixed, 4));
  }
  return join(" - ", parts);
}

std::vector<double> History::at(const std::string& name) const {
  std::vector<double> values;
  for (const auto& one : logs)
    if (const auto value = one.find(name)) values.push_back(*value);
  if (!values.empty()) return values;
  std::vector<std::string> names;
  if (!logs.empty())
    for (const auto& [other, value] : logs.back()) names.push_back(other);
  throw_unknown(name, names);
}

}  // namespace lockstep
