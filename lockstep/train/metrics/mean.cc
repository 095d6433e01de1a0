#include "lockstep/train/metrics/mean.h"

#include <ATen/ATen.h>

#include <numeric>

#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::broadcast_to;
using losses::PerExample;
using losses::to_same_rank;

std::vector<std::int64_t> dimensions_from(std::int64_t first, const at::Tensor& tensor) {
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(std::max<std::int64_t>(tensor.dim() - first, 0)));
  std::iota(dimensions.begin(), dimensions.end(), first);
  return dimensions;
}

// Combined over all dimensions from `first` on.
at::Tensor combined(const at::Tensor& tensor, std::int64_t first, bool by_mean) {
  if (tensor.dim() <= first) return tensor;
  return by_mean ? tensor.mean(dimensions_from(first, tensor)) : tensor.sum(dimensions_from(first, tensor));
}

class LossMean : public MeanRule {
 public:
  LossMean(const losses::Loss& loss, Direction direction) : MeanRule(loss.name(), direction), loss_(loss) {}

 protected:
  PerExample values(const MetricBatch& batch) const override { return loss_.evaluate(batch.y_true, batch.y_pred); }

 private:
  const losses::Loss loss_;
};

class ValueMean : public MeanRule {
 public:
  ValueMean() : MeanRule("mean") {}
  bool is_of_values() const override { return true; }

 protected:
  PerExample values(const MetricBatch& batch) const override { return {losses::to_floating(batch.y_pred)}; }
};

class ValueSum : public MetricRule {
 public:
  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override { return {zeros_on(y_pred, {})}; }
  void add(State& state, const MetricBatch& batch) const override {
    add_values("sum", {.total = &state[0], .count = nullptr, .by_mean = false}, {losses::to_floating(batch.y_pred)},
               batch.sample_weight);
  }
  at::Tensor result(const State& state) const override { return state[0]; }
  bool is_of_values() const override { return true; }
};

}  // namespace

at::Tensor zeros_on(const at::Tensor& y_pred, at::IntArrayRef sizes) {
  return at::zeros(sizes, at::TensorOptions(at::kDouble).device(y_pred.defined() ? y_pred.device() : at::Device(at::kCPU)));
}

void add_values(const std::string& name, const Totals& totals, const PerExample& given, const at::Tensor& sample_weight) {
  if (!sample_weight.defined()) {
    const auto& values = given.values;
    const auto examples = values.dim() == 0 ? 1 : values.size(0);
    const auto repeats = examples == 0 ? 1 : values.numel() / examples;
    totals.total->add_(values.sum(at::kDouble), totals.by_mean && repeats > 0 ? 1.0 / static_cast<double>(repeats) : 1.0);
    if (totals.count != nullptr) totals.count->add_(static_cast<double>(examples));
    return;
  }
  const auto floating = losses::to_floating(given.values);
  auto weight = sample_weight.to(floating.options());
  if (given.mask.defined()) {
    const auto masked = to_same_rank(given.mask.to(floating.scalar_type()), weight);
    losses::require_broadcastable(name, {"the values' mask", masked.first}, {"sample_weight", masked.second});
    weight = masked.first * masked.second;
  }
  const auto both = to_same_rank(floating, weight);
  auto values = combined(both.first, both.second.dim(), totals.by_mean);
  weight = broadcast_to(name, {"sample_weight", both.second}, {"the values", values});
  values = values * weight;
  if (both.second.dim() > 1) weight = combined(weight, 1, totals.by_mean);
  totals.total->add_(combined(values, 1, totals.by_mean).sum(at::kDouble));
  if (totals.count != nullptr) totals.count->add_(weight.sum(at::kDouble));
}

MetricRule::State MeanRule::zeros(const at::Tensor&, const at::Tensor& y_pred) const {
  return {zeros_on(y_pred, {}), zeros_on(y_pred, {})};
}

void MeanRule::add(State& state, const MetricBatch& batch) const {
  add_values(name_, {.total = &state[0], .count = &state[1], .by_mean = true}, values(batch), batch.sample_weight);
}

at::Tensor MeanRule::result(const State& state) const { return losses::divide_no_nan(state[0], state[1]); }

std::shared_ptr<const MetricRule> mean_of(const losses::Loss& loss, Direction direction) {
  return std::make_shared<LossMean>(loss, direction);
}

Metric Mean(const MetricOptions& options) {
  return Metric(options.name.empty() ? "mean" : options.name, std::make_shared<ValueMean>())
      .described(metric_text("Mean", options));
}
Metric Sum(const MetricOptions& options) {
  return Metric(options.name.empty() ? "sum" : options.name, std::make_shared<ValueSum>())
      .described(metric_text("Sum", options));
}

}  // namespace lockstep::metrics
