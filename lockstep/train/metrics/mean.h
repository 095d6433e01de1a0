#pragma once

#include <memory>
#include <string>

#include "lockstep/train/losses/loss.h"
#include "lockstep/train/metrics/metric_rule.h"

// Metrics that are a mean over examples: the state is {total, count}.

namespace lockstep::metrics {

class MeanRule : public MetricRule {
 public:
  explicit MeanRule(std::string name, Direction direction = Direction::kUnknown)
      : name_(std::move(name)), direction_(direction) {}

  State zeros(const at::Tensor& y_true, const at::Tensor& y_pred) const override;
  void add(State& state, const MetricBatch& batch) const override;
  at::Tensor result(const State& state) const override;
  Direction direction() const override { return direction_; }

 protected:
  // What is averaged: one value for each example, or several, whose mean counts.
  virtual losses::PerExample values(const MetricBatch& batch) const = 0;
  const std::string& name() const noexcept { return name_; }

 private:
  const std::string name_;
  const Direction direction_;
};

// Of what a loss gives for each example, without its reduction.
std::shared_ptr<const MetricRule> mean_of(const losses::Loss& loss, Direction direction);

// Adds values to {total, count} or {total}, by Keras's rules for weights: weights of fewer dimensions than the values weigh
// their means (`by_mean`) or sums over the rest.
struct Totals {
  at::Tensor* total = nullptr;
  at::Tensor* count = nullptr;
  bool by_mean = true;
};
void add_values(const std::string& name, const Totals& totals, const losses::PerExample& values,
                const at::Tensor& sample_weight);

// Zeros of float64 on the predictions' device.
at::Tensor zeros_on(const at::Tensor& y_pred, at::IntArrayRef sizes);

}  // namespace lockstep::metrics
