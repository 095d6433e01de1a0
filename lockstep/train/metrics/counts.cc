#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/confusion.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

// Metrics of the four counts: how many, precision and recall, and one at another.

namespace lockstep::metrics {
namespace {

using losses::divide_no_nan;
using Part = at::Tensor Confusion::*;

const Part kTruePositives = &Confusion::true_positives;
const Part kFalsePositives = &Confusion::false_positives;
const Part kTrueNegatives = &Confusion::true_negatives;
const Part kFalseNegatives = &Confusion::false_negatives;

// Keeps some of the counts, by threshold.
class CountsRule : public MetricRule {
 public:
  CountsRule(ConfusionOptions options, std::vector<Part> parts) : options_(std::move(options)), parts_(std::move(parts)) {}

  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override {
    State state;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      state.push_back(zeros_on(y_pred, {static_cast<std::int64_t>(options_.thresholds.size())}));
    return state;
  }

  void add(State& state, const MetricBatch& batch) const override {
    const auto counts = count_confusion(options_, batch);
    for (std::size_t i = 0; i < parts_.size(); ++i) state[i].add_(counts.*parts_[i]);
  }

 protected:
  // The number of a single threshold, the numbers of several.
  at::Tensor by_threshold(const at::Tensor& values) const { return options_.thresholds.size() == 1 ? values[0] : values; }

 private:
  const ConfusionOptions options_;
  const std::vector<Part> parts_;
};

class CountRule : public CountsRule {
 public:
  using CountsRule::CountsRule;
  at::Tensor result(const State& state) const override { return by_threshold(state[0]); }
};

// The first count's part of both.
class RatioRule : public CountsRule {
 public:
  using CountsRule::CountsRule;
  at::Tensor result(const State& state) const override { return by_threshold(divide_no_nan(state[0], state[0] + state[1])); }
  Direction direction() const override { return Direction::kUp; }
};

// State: all four counts. `Ratio`: of which two counts, the first being the numerator.
struct Ratio {
  std::size_t numerator;
  std::size_t other;
};
constexpr Ratio kRecall{0, 3};
constexpr Ratio kPrecision{0, 1};
constexpr Ratio kSpecificity{2, 1};

class AtRule : public CountsRule {
 public:
  struct What {
    Ratio wanted;
    Ratio given;
    double least;
  };
  AtRule(ConfusionOptions options, What what)
      : CountsRule(std::move(options), {kTruePositives, kFalsePositives, kTrueNegatives, kFalseNegatives}), what_(what) {}

  at::Tensor result(const State& state) const override {
    const auto of = [&](Ratio ratio) {
      return divide_no_nan(state[ratio.numerator], state[ratio.numerator] + state[ratio.other]);
    };
    // In float32, as Keras compares: 0.7 of ten is 0.7.
    const auto is_enough = of(what_.given).to(at::kFloat) >= static_cast<float>(what_.least);
    return (of(what_.wanted) * is_enough).max();
  }
  Direction direction() const override { return Direction::kUp; }

 private:
  const What what_;
};

ConfusionOptions options_of(const char* name, const std::vector<double>& thresholds, double otherwise = 0.5) {
  ConfusionOptions options{.name = name, .thresholds = thresholds_or(name, thresholds, otherwise)};
  options.is_even = are_even(options.thresholds);
  return options;
}

Metric count(const CountOptions& options, const char* name, Part part) {
  return Metric(options.name.empty() ? name : options.name,
                std::make_shared<CountRule>(options_of(name, options.thresholds), std::vector<Part>{part}));
}

Metric ratio(const PrecisionOptions& options, const char* name, Part other) {
  auto confusion = options_of(name, options.thresholds, options.top_k ? kNever : 0.5);
  confusion.top_k = options.top_k;
  confusion.class_id = options.class_id;
  if (options.top_k && *options.top_k < 1)
    throw Error(ErrorCode::kInvalidArgument, str(name, ": top_k is ", *options.top_k, "; it must be at least 1"));
  return Metric(options.name.empty() ? name : options.name,
                std::make_shared<RatioRule>(std::move(confusion), std::vector<Part>{kTruePositives, other}));
}

Metric at_least(const AtOptions& options, const char* name, Ratio wanted, Ratio given) {
  if (!(options.value >= 0 && options.value <= 1))
    throw Error(ErrorCode::kInvalidArgument, str(name, ": value is ", options.value, "; it must be in [0, 1]"));
  if (options.num_thresholds < 1)
    throw Error(ErrorCode::kInvalidArgument, str(name, ": num_thresholds is ", options.num_thresholds, "; it must be above 0"));
  ConfusionOptions confusion{.name = name};
  confusion.is_even = options.num_thresholds > 1;
  confusion.thresholds = confusion.is_even ? even_thresholds(options.num_thresholds) : std::vector<double>{0.5};
  confusion.class_id = options.class_id;
  return Metric(options.name.empty() ? name : options.name,
                std::make_shared<AtRule>(std::move(confusion), AtRule::What{wanted, given, options.value}));
}

}  // namespace

Metric TruePositives(const CountOptions& options) {
  return count(options, "true_positives", kTruePositives).described(metric_text("TruePositives", options));
}
Metric TrueNegatives(const CountOptions& options) {
  return count(options, "true_negatives", kTrueNegatives).described(metric_text("TrueNegatives", options));
}
Metric FalsePositives(const CountOptions& options) {
  return count(options, "false_positives", kFalsePositives).described(metric_text("FalsePositives", options));
}
Metric FalseNegatives(const CountOptions& options) {
  return count(options, "false_negatives", kFalseNegatives).described(metric_text("FalseNegatives", options));
}

Metric Precision(const PrecisionOptions& options) {
  return ratio(options, "precision", kFalsePositives).described(metric_text("Precision", options));
}
Metric Recall(const PrecisionOptions& options) {
  return ratio(options, "recall", kFalseNegatives).described(metric_text("Recall", options));
}

Metric SensitivityAtSpecificity(const AtOptions& options) {
  return at_least(options, "sensitivity_at_specificity", kRecall, kSpecificity)
      .described(metric_text("SensitivityAtSpecificity", options));
}
Metric SpecificityAtSensitivity(const AtOptions& options) {
  return at_least(options, "specificity_at_sensitivity", kSpecificity, kRecall)
      .described(metric_text("SpecificityAtSensitivity", options));
}
Metric PrecisionAtRecall(const AtOptions& options) {
  return at_least(options, "precision_at_recall", kPrecision, kRecall).described(metric_text("PrecisionAtRecall", options));
}
Metric RecallAtPrecision(const AtOptions& options) {
  return at_least(options, "recall_at_precision", kRecall, kPrecision).described(metric_text("RecallAtPrecision", options));
}

}  // namespace lockstep::metrics
