#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/losses/losses.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::kEpsilon;

// The mean of a loss that is better when it is lower.
Metric make(const std::string& name, const char* otherwise, const losses::Loss& loss) {
  return Metric(name.empty() ? otherwise : name, mean_of(loss, Direction::kDown));
}

// The mean of fn over an axis, better when it is higher.
template <typename F>
Metric similarity(const AxisOptions& options, const char* otherwise, F fn) {
  const losses::Loss values(
      otherwise, [axis = options.axis, fn, what = std::string(otherwise)](const at::Tensor& y_true, const at::Tensor& y_pred) {
        const auto both = losses::align(what, y_true, y_pred);
        return fn(both.y_true, both.y_pred, losses::axis_of(what, axis, both.y_pred));
      });
  return Metric(options.name.empty() ? otherwise : options.name, mean_of(values, Direction::kUp));
}

class RootMeanRule : public MeanRule {
 public:
  RootMeanRule() : MeanRule("root_mean_squared_error", Direction::kDown) {}
  at::Tensor result(const State& state) const override { return MeanRule::result(state).sqrt(); }

 protected:
  losses::PerExample values(const MetricBatch& batch) const override {
    const auto both = losses::align(name(), batch.y_true, batch.y_pred);
    return {(both.y_pred - both.y_true).square()};
  }
};

// State: {num_samples, squared_sum, sum, residual, count}, the last four by output.
class R2Rule : public MetricRule {
 public:
  explicit R2Rule(const R2ScoreOptions& options) : options_(options) {}

  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override {
    if (!y_pred.defined()) return {};
    const auto outputs = y_pred.dim() == 2 ? y_pred.size(1) : 1;
    State state{zeros_on(y_pred, {})};
    for (int i = 0; i < 4; ++i) state.push_back(zeros_on(y_pred, {outputs}));
    return state;
  }

  void add(State& state, const MetricBatch& batch) const override {
    const auto both = losses::align_equal("r2_score", batch.y_true, batch.y_pred);
    if (both.y_true.dim() != 2)
      throw Error(ErrorCode::kInvalidArgument, lockstep::str("r2_score: predictions of shape ", batch.y_pred.sizes(),
                                                             "; they must have shape [examples, outputs]"));
    const auto y_true = both.y_true.to(at::kDouble);
    auto weight = at::ones({}, y_true.options());
    if (batch.sample_weight.defined()) weight = batch.sample_weight.to(y_true.options());
    if (weight.dim() == 1) weight = weight.unsqueeze(1);
    weight = losses::broadcast_to("r2_score", {"sample_weight", weight}, {"y_true", y_true});
    state[0].add_(static_cast<double>(y_true.numel()));
    state[1].add_((y_true * y_true * weight).sum(0));
    state[2].add_((y_true * weight).sum(0));
    state[3].add_(((y_true - both.y_pred).square() * weight).sum(0));
    state[4].add_(weight.sum(0));
  }

  at::Tensor result(const State& state) const override {
    const auto total = state[1] - state[2] * (state[2] / state[4]);
    auto score = 1 - state[3] / total;
    score = score.masked_fill(at::isinf(score), 0);
    if (options_.class_aggregation == "uniform_average") score = score.mean();
    else if (options_.class_aggregation == "variance_weighted_average") score = (total * score).sum() / total.sum();
    return options_.num_regressors == 0 ? score : adjusted(score, state[0].item<double>());
  }

  Direction direction() const override { return Direction::kUp; }

 private:
  at::Tensor adjusted(const at::Tensor& score, double samples) const {
    const auto regressors = static_cast<double>(options_.num_regressors);
    if (regressors >= samples - 1) return score;  // nothing to adjust with
    return 1 - (1 - score) * (samples - 1) / (samples - regressors - 1);
  }

  const R2ScoreOptions options_;
};

at::Tensor normalized(const at::Tensor& x, std::int64_t axis) {
  return x * x.square().sum(axis, /*keepdim=*/true).clamp_min(kEpsilon * kEpsilon).rsqrt();
}

at::Tensor mean(const at::Tensor& x, std::int64_t axis) { return x.mean(axis, /*keepdim=*/true); }

// The variance of the population.
at::Tensor variance(const at::Tensor& x, std::int64_t axis) { return mean((x - mean(x, axis)).square(), axis); }

}  // namespace

Metric MeanSquaredError(const MetricOptions& options) {
  return make(options.name, "mean_squared_error", losses::mean_squared_error())
      .described(metric_text("MeanSquaredError", options));
}
Metric MeanAbsoluteError(const MetricOptions& options) {
  return make(options.name, "mean_absolute_error", losses::mean_absolute_error())
      .described(metric_text("MeanAbsoluteError", options));
}
Metric MeanAbsolutePercentageError(const MetricOptions& options) {
  return make(options.name, "mean_absolute_percentage_error", losses::mean_absolute_percentage_error())
      .described(metric_text("MeanAbsolutePercentageError", options));
}
Metric MeanSquaredLogarithmicError(const MetricOptions& options) {
  return make(options.name, "mean_squared_logarithmic_error", losses::mean_squared_logarithmic_error())
      .described(metric_text("MeanSquaredLogarithmicError", options));
}
Metric LogCoshError(const MetricOptions& options) {
  return make(options.name, "logcosh", losses::log_cosh()).described(metric_text("LogCoshError", options));
}
Metric Hinge(const MetricOptions& options) {
  return make(options.name, "hinge", losses::hinge()).described(metric_text("Hinge", options));
}
Metric SquaredHinge(const MetricOptions& options) {
  return make(options.name, "squared_hinge", losses::squared_hinge()).described(metric_text("SquaredHinge", options));
}
Metric CategoricalHinge(const MetricOptions& options) {
  return make(options.name, "categorical_hinge", losses::categorical_hinge())
      .described(metric_text("CategoricalHinge", options));
}
Metric KLDivergence(const MetricOptions& options) {
  return make(options.name, "kl_divergence", losses::kl_divergence()).described(metric_text("KLDivergence", options));
}
Metric Poisson(const MetricOptions& options) {
  return make(options.name, "poisson", losses::poisson()).described(metric_text("Poisson", options));
}

Metric RootMeanSquaredError(const MetricOptions& options) {
  return Metric(options.name.empty() ? "root_mean_squared_error" : options.name, std::make_shared<RootMeanRule>())
      .described(metric_text("RootMeanSquaredError", options));
}

Metric BinaryCrossentropy(const CrossentropyOptions& options) {
  return make(options.name, "binary_crossentropy",
              losses::binary_crossentropy(
                  {.from_logits = options.from_logits, .label_smoothing = options.label_smoothing, .axis = options.axis}))
      .described(metric_text("BinaryCrossentropy", options));
}

Metric CategoricalCrossentropy(const CrossentropyOptions& options) {
  return make(options.name, "categorical_crossentropy",
              losses::categorical_crossentropy(
                  {.from_logits = options.from_logits, .label_smoothing = options.label_smoothing, .axis = options.axis}))
      .described(metric_text("CategoricalCrossentropy", options));
}

Metric SparseCategoricalCrossentropy(const SparseCrossentropyOptions& options) {
  return make(options.name, "sparse_categorical_crossentropy",
              losses::sparse_categorical_crossentropy(
                  {.from_logits = options.from_logits, .ignore_class = options.ignore_class, .axis = options.axis}))
      .described(metric_text("SparseCategoricalCrossentropy", options));
}

Metric CosineSimilarity(const AxisOptions& options) {
  return similarity(options, "cosine_similarity",
                    [](const at::Tensor& y_true, const at::Tensor& y_pred, std::int64_t axis) {
                      return (normalized(y_true, axis) * normalized(y_pred, axis)).sum(axis);
                    })
      .described(metric_text("CosineSimilarity", options));
}

Metric PearsonCorrelation(const AxisOptions& options) {
  return similarity(options, "pearson_correlation",
                    [](const at::Tensor& y_true, const at::Tensor& y_pred, std::int64_t axis) {
                      const auto standardized = [&](const at::Tensor& x) {
                        return (x - mean(x, axis)) / variance(x, axis).sqrt();
                      };
                      return (standardized(y_true) * standardized(y_pred)).mean(axis);
                    })
      .described(metric_text("PearsonCorrelation", options));
}

Metric ConcordanceCorrelation(const AxisOptions& options) {
  return similarity(options, "concordance_correlation",
                    [](const at::Tensor& y_true, const at::Tensor& y_pred, std::int64_t axis) {
                      const auto pred_mean = mean(y_pred, axis);
                      const auto covariance = (y_true - pred_mean) * (y_pred - pred_mean);
                      const auto norm =
                          variance(y_true, axis) + variance(y_pred, axis) + (mean(y_true, axis) - pred_mean).square();
                      return (2 * covariance / (norm + kEpsilon)).mean(axis);
                    })
      .described(metric_text("ConcordanceCorrelation", options));
}

Metric R2Score(const R2ScoreOptions& options) {
  const auto& how = options.class_aggregation;
  if (!how.empty() && how != "uniform_average" && how != "variance_weighted_average")
    throw Error(ErrorCode::kInvalidArgument, str("R2Score: class_aggregation is '", how,
                                                 "'; it must be 'uniform_average', 'variance_weighted_average' or ''"));
  if (options.num_regressors < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("R2Score: num_regressors is ", options.num_regressors, "; it must not be negative"));
  return Metric(options.name.empty() ? "r2_score" : options.name, std::make_shared<R2Rule>(options))
      .described(metric_text("R2Score", options));
}

}  // namespace lockstep::metrics
