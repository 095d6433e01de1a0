#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::kEpsilon;

// State: {true positives, false positives, false negatives, weight of the labels}, by class, or with "micro" one number.
class FBetaRule : public MetricRule {
 public:
  FBetaRule(const char* name, const FBetaScoreOptions& options) : what_(name), options_(options) {}

  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override {
    const bool is_micro = options_.average == "micro";
    if (!y_pred.defined() && !is_micro) return {};
    State state;
    for (int i = 0; i < 4; ++i)
      state.push_back(is_micro ? zeros_on(y_pred, {}) : zeros_on(y_pred, {y_pred.dim() == 2 ? y_pred.size(1) : 1}));
    return state;
  }

  void add(State& state, const MetricBatch& batch) const override {
    const auto pred = losses::to_floating(batch.y_pred);
    if (pred.dim() != 2 || batch.y_true.sizes() != pred.sizes())
      throw Error(ErrorCode::kInvalidArgument, lockstep::str(what_, ": y_true has shape ", batch.y_true.sizes(), ", y_pred ",
                                                             pred.sizes(), "; both must have shape [examples, classes]"));
    const auto is_positive = options_.threshold ? pred > *options_.threshold
                                                : (pred >= pred.amax(-1, /*keepdim=*/true)).logical_and(pred.abs() > 1e-9);
    const auto found = is_positive.to(at::kDouble);
    const auto wanted = batch.y_true.to(found.options());
    at::Tensor weight;
    if (batch.sample_weight.defined()) weight = batch.sample_weight.to(found.options()).unsqueeze(1);
    if (weight.defined()) losses::require_broadcastable(what_, {"sample_weight", weight}, {"y_pred", pred});
    const auto count = [&](at::Tensor& total, const at::Tensor& values) {
      const auto weighed = weight.defined() ? values * weight : values;
      total.add_(options_.average == "micro" ? weighed.sum() : weighed.sum(0));
    };
    count(state[0], found * wanted);
    count(state[1], found * (1 - wanted));
    count(state[2], (1 - found) * wanted);
    count(state[3], wanted);
  }

  at::Tensor result(const State& state) const override {
    const auto precision = state[0] / (state[0] + state[1] + kEpsilon);
    const auto recall = state[0] / (state[0] + state[2] + kEpsilon);
    const double square = options_.beta * options_.beta;
    const auto score = precision * recall / (square * precision + recall + kEpsilon) * (1 + square);
    if (options_.average.empty()) return score;
    if (options_.average == "weighted") return (score * (state[3] / (state[3].sum() + kEpsilon))).sum();
    return score.mean();
  }

  Direction direction() const override { return Direction::kUp; }

 private:
  const std::string what_;
  const FBetaScoreOptions options_;
};

Metric make(const char* name, const FBetaScoreOptions& options) {
  const auto& average = options.average;
  if (!average.empty() && average != "micro" && average != "macro" && average != "weighted")
    throw Error(ErrorCode::kInvalidArgument,
                str(name, ": average is '", average, "'; it must be 'micro', 'macro', 'weighted' or '' (one for each class)"));
  if (!(options.beta > 0))
    throw Error(ErrorCode::kInvalidArgument, str(name, ": beta is ", options.beta, "; it must be above 0"));
  if (options.threshold && !(*options.threshold > 0 && *options.threshold <= 1))
    throw Error(ErrorCode::kInvalidArgument,
                str(name, ": threshold is ", *options.threshold, "; it must be above 0 and at most 1"));
  return Metric(options.name.empty() ? name : options.name, std::make_shared<FBetaRule>(name, options));
}

}  // namespace

Metric FBetaScore(const FBetaScoreOptions& options) {
  return make("fbeta_score", options).described(metric_text("FBetaScore", options));
}

Metric F1Score(const F1ScoreOptions& options) {
  return make("f1_score", {.average = options.average, .beta = 1.0, .threshold = options.threshold, .name = options.name})
      .described(metric_text("F1Score", options));
}

}  // namespace lockstep::metrics
