#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/observe/metrics_endpoint.h"

namespace lockstep {
namespace {

enum class Kind { kCounter, kGauge };

const char* name_of(Kind kind) { return kind == Kind::kCounter ? "counter" : "gauge"; }

bool is_word(const std::string& name, const std::string& also) {
  const auto is_good = [&](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || also.find(static_cast<char>(c)) != std::string::npos;
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 && std::ranges::all_of(name, is_good);
}

std::string escaped(const std::string& text, bool is_label) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') result += "\\n";
    else if (c == '\\' || (c == '"' && is_label)) result += {'\\', c};
    else result += c;
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

std::string text_of(const MetricsRegistry::Labels& labels) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : labels) parts.push_back(str(name, "=\"", escaped(value, /*is_label=*/true), "\""));
  return parts.empty() ? "" : str("{", join(",", parts), "}");
}

struct Family {
  Kind kind = Kind::kCounter;
  std::string help = "";
  // By the text of their labels.
  std::map<std::string, std::unique_ptr<Counter>> counters = {};
  std::map<std::string, std::unique_ptr<Gauge>> gauges = {};
};

template <typename T>
T& find_or_make(std::map<std::string, std::unique_ptr<T>>& all, const MetricsRegistry::Labels& labels) {
  auto& one = all[text_of(labels)];
  if (one == nullptr) one = std::make_unique<T>();
  return *one;
}

template <typename T>
void put_values(std::string& to, const std::string& name, const std::map<std::string, std::unique_ptr<T>>& all) {
  for (const auto& [labels, one] : all) to += str(name, labels, " ", number(one->value()), "\n");
}

}  // namespace

struct MetricsRegistry::State {
  mutable std::mutex mu;
  // Guarded by mu.
  std::map<std::string, Family> families;
  std::function<void()> refresh;

  // With mu held.
  Family& family(const std::string& name, Kind kind, const std::string& help, const Labels& labels) {
    if (!is_word(name, ":"))
      throw Error(ErrorCode::kInvalidArgument,
                  str("the metric name '", name, "' is none: letters, digits, '_' and ':', and no digit first"));
    for (const auto& [label, value] : labels)
      if (!is_word(label, "") || label.starts_with("__"))
        throw Error(ErrorCode::kInvalidArgument, str("the label name '", label, "' of the metric '", name,
                                                     "' is none: letters, digits and '_', no digit and no '__' first"));
    const auto [found, is_new] = families.try_emplace(name);
    if (is_new) found->second = {kind, help};
    if (found->second.kind != kind)
      throw Error(ErrorCode::kInvalidArgument, str("the metric '", name, "' is a ", name_of(found->second.kind),
                                                   " and was asked for as a ", name_of(kind), "; give it another name"));
    return found->second;
  }
};

MetricsRegistry::MetricsRegistry() : state_(std::make_unique<State>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(const std::string& name, const std::string& help, const Labels& labels) {
  const std::lock_guard lock(state_->mu);
  return find_or_make(state_->family(name, Kind::kCounter, help, labels).counters, labels);
}

Gauge& MetricsRegistry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  const std::lock_guard lock(state_->mu);
  return find_or_make(state_->family(name, Kind::kGauge, help, labels).gauges, labels);
}

void MetricsRegistry::set_refresh(std::function<void()> refresh) {
  const std::lock_guard lock(state_->mu);
  state_->refresh = std::move(refresh);
}

std::string MetricsRegistry::text() const {
  std::unique_lock lock(state_->mu);
  if (const auto refresh = state_->refresh) {
    lock.unlock();
    refresh();
    lock.lock();
  }
  std::string all;
  for (const auto& [name, family] : state_->families) {
    all +=
        str("# HELP ", name, " ", escaped(family.help, /*is_label=*/false), "\n# TYPE ", name, " ", name_of(family.kind), "\n");
    put_values(all, name, family.counters);
    put_values(all, name, family.gauges);
  }
  return all;
}

}  // namespace lockstep
