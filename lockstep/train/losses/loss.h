#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace lockstep::losses {

// What is given for each example by a function of one's own.
using ExampleFunction = std::function<at::Tensor(const at::Tensor& y_true, const at::Tensor& y_pred)>;

// A callable that is what it is by its type alone, such as a lambda without captures: other tasks of a job, which run the same
// program, find it by a name.
template <typename F>
concept FunctionByType = std::is_class_v<F> && std::is_empty_v<F> && std::is_default_constructible_v<F> &&
    std::is_invocable_r_v<at::Tensor, F&, const at::Tensor&, const at::Tensor&>;

// The name under which it is found: of its type, numbered where different files have types of one name.
std::string register_function(const std::type_info& type, ExampleFunction function);
// Throws kNotFound when this program has no such function.
ExampleFunction function_by_name(const std::string& name);

// Registers itself before main() in every program that mentions its kName.
template <FunctionByType F>
struct NamedFunction {
  static inline const std::string kName = register_function(typeid(F), F{});
};

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
  using Function = ExampleFunction;
  using Rule = std::function<PerExample(const at::Tensor& y_true, const at::Tensor& y_pred)>;

  // By Keras's name: "mse", "mean_squared_error", "MeanSquaredError", ... Throws kInvalidArgument for a name that does not
  // exist, and offers the nearest.
  Loss(const char* name);         // NOLINT: a name is a loss
  Loss(const std::string& name);  // NOLINT: a name is a loss

  // A loss of one's own: `function` gives one value for each example, or for each element of it. It gets y_true and y_pred
  // as they are.
  Loss(std::string name, Function function, Reduction reduction = Reduction::kSumOverBatchSize);
  // The same of a lambda without captures, which other tasks of a job know too.
  template <FunctionByType F>
  Loss(std::string name, F function, Reduction reduction = Reduction::kSumOverBatchSize)
      : Loss(named(NamedFunction<F>::kName, Loss(std::move(name), Function(function), reduction))) {}
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

  // As text (JSON) that another task of the job makes the same loss of. to_text() throws kUnimplemented for a loss of one's own
  // whose function captures something; from_text() kInvalidArgument for what is no such text, kNotFound for a function that
  // this program does not have.
  std::string to_text() const;
  static Loss from_text(const std::string& text);

  // For those who make losses: how text describes it, without the reduction.
  using Description = std::function<std::string()>;
  Loss described(Description description) const;

  struct State;

 private:
  explicit Loss(std::shared_ptr<const State> state);
  static Loss named(const std::string& function, const Loss& loss);

  std::shared_ptr<const State> state_;
};

}  // namespace lockstep::losses

namespace lockstep {
using losses::Loss;
using losses::Reduction;
}  // namespace lockstep
