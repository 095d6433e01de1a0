#pragma once

#include <string>

#include "lockstep/train/metrics/metric.h"

// Metrics as text: {"metric":"AUC","options":{"curve":"PR"},"name":"auc"}; with all defaults without options; the mean of a
// loss as {"loss":{...},"name":"mae"}; one's own by the name of its function: {"function":"...","name":"mine"}.

namespace lockstep::metrics {

// How text describes the metric that the function `kind` makes of these options. For the options of metrics.h.
template <typename Options>
Metric::Description metric_text(const char* kind, const Options& options);
// The metric of that name.
Metric::Description metric_text(const std::string& name);
// The mean of a loss.
Metric::Description metric_text(const losses::Loss& loss);

}  // namespace lockstep::metrics
