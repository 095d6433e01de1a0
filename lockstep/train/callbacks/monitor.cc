#include "lockstep/train/callbacks/monitor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <regex>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/train/callbacks/training.h"
#include "lockstep/train/metrics/names.h"

namespace lockstep {
namespace {

constexpr std::array kMoreIsBetter = {"acc", "auc",   "precision",      "recall",         "f1",          "fbeta",      "iou",
                                      "r2",  "score", "true_positives", "true_negatives", "sensitivity", "specificity"};

// A metric's name without what fit() puts around it: "val_output_1_auc_2" is "auc".
std::string metric_of(const std::string& name) {
  static const std::regex around("(?:val_)?(?:weighted_)?(?:output_[0-9]+_)?(.*?)(?:_[0-9]+)?");
  std::smatch found;
  return std::regex_match(name, found, around) ? found[1].str() : name;
}

bool more_is_better(const std::string& name) {
  const auto metric = metric_of(name);
  if (std::ranges::count(metrics::metric_names(), metric) > 0) {
    const auto direction = metrics::rule_by_name(metric)->direction();
    if (direction != metrics::Direction::kUnknown) return direction == metrics::Direction::kUp;
  }
  return std::ranges::any_of(kMoreIsBetter, [&](const char* part) { return name.find(part) != std::string::npos; });
}

}  // namespace

Monitor::Monitor(std::string name, MonitorMode mode, double min_delta)
    : name_(std::move(name)),
      mode_(mode),
      is_max_(mode == MonitorMode::kMax || (mode == MonitorMode::kAuto && more_is_better(name_))),
      min_delta_(std::abs(min_delta)) {}

void Monitor::ask(const Training& training) {
  const auto direction = training.direction(name_);
  if (mode_ == MonitorMode::kAuto && direction != metrics::Direction::kUnknown) is_max_ = direction == metrics::Direction::kUp;
}

bool Monitor::is_better(double value, double than) const noexcept {
  return is_max_ ? value - min_delta_ > than : value + min_delta_ < than;
}

double Monitor::worst() const noexcept {
  return is_max_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

std::optional<double> Monitor::read(const Logs& logs, const char* who) const {
  const auto value = logs.find(name_);
  if (!value) {
    std::vector<std::string> names;
    for (const auto& [name, other] : logs) names.push_back(name);
    log_once(LogLevel::kWarning, str(who, " watches '", name_, "', which is not in the logs (", join(", ", names),
                                     "); it does nothing. Values of validation need validation_data"));
  }
  return value;
}

}  // namespace lockstep
