#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::metrics {

// What a metric is given for one batch. Tensors may be undefined: the weights when all examples count the same, y_true in
// a metric of values (Mean, Sum), whose values are y_pred.
struct MetricBatch {
  at::Tensor y_true = {};
  at::Tensor y_pred = {};
  at::Tensor sample_weight = {};
};

// Which way is better, for those who keep the best. kUnknown is what an empty one is.
enum class Direction { kUnknown, kUp, kDown };

// How a metric counts. Derive from it for a metric of one's own, and give it to Metric, which keeps one state for each
// replica and adds them up:
// - everything is a sum: result(a + b) must be the result over all examples of both;
// - functions are const and are called from all replicas at once, without gradients.
class MetricRule {
 public:
  using State = std::vector<at::Tensor>;

  virtual ~MetricRule() = default;

  // The state before any example, for data of this form, on y_pred's device. Undefined tensors: nothing was seen yet; then
  // the state on the CPU, or nothing where it depends on the data.
  virtual State zeros(const at::Tensor& y_true, const at::Tensor& y_pred) const = 0;

  // Adds a batch of at least one example, in place. Throws kInvalidArgument for data that does not fit.
  virtual void add(State& state, const MetricBatch& batch) const = 0;

  virtual at::Tensor result(const State& state) const = 0;

  // True: update_state() takes values and their weights, not labels and predictions.
  virtual bool is_of_values() const { return false; }
  virtual Direction direction() const { return Direction::kUnknown; }
};

}  // namespace lockstep::metrics
