#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/metrics/metric_rule.h"

namespace lockstep::metrics {

// The rule of the metric of that name, with its default arguments. Throws kInvalidArgument for a name that does not exist.
std::shared_ptr<const MetricRule> rule_by_name(const std::string& name);

// All names, in order.
std::vector<std::string> metric_names();

}  // namespace lockstep::metrics
