#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

namespace lockstep::losses {

// How the examples' losses become one number. `values` are the losses times their weights.
enum class Reduction {
  kSumOverBatchSize,      // sum(values) / how many there are
  kSum,                   // sum(values)
  kMean,                  // as kSumOverBatchSize
  kMeanWithSampleWeight,  // sum(values) / sum(weights)
  kNone,                  // values
};
std::ostream& operator<<(std::ostream& out, Reduction reduction);

// The losses of a batch, one for each example (or element), and which of them count.
struct PerExample {
  at::Tensor values = {};
  at::Tensor mask = {};  // bool, of the values' shape; undefined: all count
};

// A loss function with Keras's rules for shapes, weights and reduction. A value, cheap to copy; used from any thread.
//
// y_true and y_pred are computed with in y_pred's floating point type (float32 for float16, bfloat16 and integers), on
// y_pred's device. Predictions of shape [examples, 1] and labels of shape [examples] (and the other way round) are brought
// to one shape. Losses that take a mean over the last dimension give one number for predictions of one dimension.
// Differentiable. Shapes that do not fit together are kInvalidArgument.
class Loss {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred)>;
  using Rule = std::function<PerExample(const at::Tensor& y_true, const at::Tensor& y_pred)>;

  // By Keras's name: "mse", "mean_squared_error", "MeanSquaredError", ... Throws kInvalidArgument for a name that does not
  // exist, and offers the nearest.
  Loss(const char* name);         // NOLINT: a name is a loss
  Loss(const std::string& name);  // NOLINT: a name is a loss

  // A loss of one's own: `function` gives one value for each example, or for each element of it. It gets y_true and y_pred
  // as they are.
  Loss(std::string name, Function function, Reduction reduction = Reduction::kSumOverBatchSize);
  // The same, with a mask where `is_masked`.
  static Loss from_rule(std::string name, Rule rule, Reduction reduction, bool is_masked = false);

  const std::string& name() const noexcept;
  Reduction reduction() const noexcept;
  // Whether what the sum is divided by depends on the data: on a mask, or on the sample weights.
  bool is_divided_by_data() const noexcept;
  // The same loss with another reduction.
  Loss with_reduction(Reduction reduction) const;

  // Without weights or reduction.
  at::Tensor per_example(const at::Tensor& y_true, const at::Tensor& y_pred) const;
  PerExample evaluate(const at::Tensor& y_true, const at::Tensor& y_pred) const;

  // Weighed and reduced. `sample_weight`: one weight for each example, or something that can be broadcast to the losses;
  // undefined: all count the same. A batch of no rows has the loss 0.
  at::Tensor operator()(const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight = {}) const;

  // The loss is sum / divisor (0 where the divisor is 0): the sums over the parts of a batch divided by the sum of
  // their divisors are the loss of the whole batch, however it was divided. Both are scalars; `divisor` is float64, on the
  // CPU unless it depends on the data. With kSum and kNone it is 1.
  struct Total {
    at::Tensor sum = {};
    at::Tensor divisor = {};
  };
  Total total(const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight = {}) const;

  struct State;

 private:
  explicit Loss(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

}  // namespace lockstep::losses

namespace lockstep {
using losses::Loss;
using losses::Reduction;
}  // namespace lockstep
