#pragma once

#include <memory>

#include "lockstep/train/metrics/metric_rule.h"

namespace lockstep::metrics {

// "accuracy": binary, categorical or sparse categorical, by the shapes of each batch.
std::shared_ptr<const MetricRule> automatic_accuracy();

}  // namespace lockstep::metrics
