#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

// Keras's rules for shapes that do not quite fit, shared by losses and metrics.

namespace lockstep::losses {

// Keras's fuzz factor.
inline constexpr double kEpsilon = 1e-7;

struct Pair {
  at::Tensor first = {};
  at::Tensor second = {};
};

// Where one has a last dimension of size 1 more than the other, that dimension goes, or the other gets one: the latter when
// the other has one dimension and `expand_rank_1`.
Pair to_same_rank(const at::Tensor& first, const at::Tensor& second, bool expand_rank_1 = true);

// The dtype to compute with for predictions of this dtype: float64 as it is, anything else float32.
at::Tensor to_floating(const at::Tensor& tensor);

// y_true and y_pred in one floating point type, on y_pred's device, of the same rank where that is possible. Throws
// kInvalidArgument, naming `what`, when they cannot be broadcast to each other, or are not dense.
struct Aligned {
  at::Tensor y_true = {};
  at::Tensor y_pred = {};
};
Aligned align(const std::string& what, const at::Tensor& y_true, const at::Tensor& y_pred);
// The same, and both have the same shape.
Aligned align_equal(const std::string& what, const at::Tensor& y_true, const at::Tensor& y_pred);

// Throws kInvalidArgument unless the shapes can be broadcast together. The names say what has them.
struct Named {
  const char* name = "";
  const at::Tensor& tensor;
};
void require_broadcastable(const std::string& what, const Named& a, const Named& b);
// `tensor` as it would be in the shape of `like`. Throws kInvalidArgument when it cannot be.
at::Tensor broadcast_to(const std::string& what, const Named& tensor, const Named& like);

// The axis counted from 0. Throws kInvalidArgument when there is none.
std::int64_t axis_of(const std::string& what, std::int64_t axis, const at::Tensor& tensor);

// numerator / denominator, 0 where the denominator is 0.
at::Tensor divide_no_nan(const at::Tensor& numerator, const at::Tensor& denominator);

}  // namespace lockstep::losses
