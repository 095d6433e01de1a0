#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/metrics/metric_rule.h"

// How many predictions are above thresholds, and rightly so: what confusion metrics are made of.

namespace lockstep::metrics {

// "Not among the highest k": below every threshold.
inline constexpr double kNever = -1e10;

struct ConfusionOptions {
  std::string name = "";
  std::vector<double> thresholds = {};
  bool is_even = false;  // thresholds go from 0 to 1 in equal steps: predictions are sorted into buckets
  std::optional<std::int64_t> top_k = std::nullopt;
  std::optional<std::int64_t> class_id = std::nullopt;
  bool is_multi_label = false;
  std::vector<double> label_weights = {};  // of the columns; not with is_multi_label
};

// By threshold, and with is_multi_label by label too. float64.
struct Confusion {
  at::Tensor true_positives = {};
  at::Tensor false_positives = {};
  at::Tensor true_negatives = {};
  at::Tensor false_negatives = {};
};

Confusion count_confusion(const ConfusionOptions& options, const MetricBatch& batch);

// `given`, or {otherwise} when there are none. Throws kInvalidArgument for one outside [0, 1].
std::vector<double> thresholds_or(const std::string& name, const std::vector<double>& given, double otherwise);
// From 0 to 1 in equal steps, at least three.
bool are_even(const std::vector<double>& thresholds);
// `count` thresholds from 0 to 1 in equal steps.
std::vector<double> even_thresholds(std::int64_t count);

}  // namespace lockstep::metrics
