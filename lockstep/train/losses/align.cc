#include "lockstep/train/losses/align.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"

namespace lockstep::losses {
namespace {

bool has_last_of_one(const at::Tensor& tensor) { return tensor.dim() > 0 && tensor.size(-1) == 1; }

// Whether `from` can be broadcast to `to`; with `both`, whether they can to a common shape.
bool fits(at::IntArrayRef from, at::IntArrayRef to, bool both) {
  if (!both && from.size() > to.size()) return false;
  for (std::size_t back = 1; back <= std::min(from.size(), to.size()); ++back) {
    const auto a = from[from.size() - back];
    const auto b = to[to.size() - back];
    if (a != b && a != 1 && !(both && b == 1)) return false;
  }
  return true;
}

[[noreturn]] void throw_shapes(const std::string& what, const Named& a, const Named& b, const char* wanted) {
  throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": ", a.name, " has shape ", a.tensor.sizes(), ", ", b.name, " ",
                                                         b.tensor.sizes(), "; ", wanted));
}

}  // namespace

Pair to_same_rank(const at::Tensor& first, const at::Tensor& second, bool expand_rank_1) {
  if (first.dim() == second.dim() + 1 && has_last_of_one(first)) {
    if (second.dim() == 1 && expand_rank_1) return {first, second.unsqueeze(-1)};
    return {first.squeeze(-1), second};
  }
  if (second.dim() == first.dim() + 1 && has_last_of_one(second)) {
    if (first.dim() == 1 && expand_rank_1) return {first.unsqueeze(-1), second};
    return {first, second.squeeze(-1)};
  }
  return {first, second};
}

at::Tensor to_floating(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kDouble || dtype == at::kFloat ? tensor : tensor.to(at::kFloat);
}

Aligned align(const std::string& what, const at::Tensor& y_true, const at::Tensor& y_pred) {
  if (!is_dense(y_true)) require_dense(y_true, lockstep::str(what, ", y_true").c_str());
  if (!is_dense(y_pred)) require_dense(y_pred, lockstep::str(what, ", y_pred").c_str());
  const auto pred = to_floating(y_pred);
  const auto pair = to_same_rank(y_true.to(pred.options()), pred);
  require_broadcastable(what, {"y_true", pair.first}, {"y_pred", pair.second});
  return {pair.first, pair.second};
}

Aligned align_equal(const std::string& what, const at::Tensor& y_true, const at::Tensor& y_pred) {
  auto both = align(what, y_true, y_pred);
  if (both.y_true.sizes() != both.y_pred.sizes())
    throw_shapes(what, {"y_true", both.y_true}, {"y_pred", both.y_pred}, "they must be equal");
  return both;
}

void require_broadcastable(const std::string& what, const Named& a, const Named& b) {
  if (a.tensor.sizes() == b.tensor.sizes() || fits(a.tensor.sizes(), b.tensor.sizes(), true)) return;
  throw_shapes(what, a, b, "they must be equal, or 1 where they are not");
}

at::Tensor broadcast_to(const std::string& what, const Named& tensor, const Named& like) {
  if (tensor.tensor.sizes() == like.tensor.sizes()) return tensor.tensor;
  if (!fits(tensor.tensor.sizes(), like.tensor.sizes(), false))
    throw_shapes(what, tensor, like, "the first must fit the second: equal, or 1 where it is not");
  return tensor.tensor.expand(like.tensor.sizes());
}

std::int64_t axis_of(const std::string& what, std::int64_t axis, const at::Tensor& tensor) {
  if (axis >= -tensor.dim() && axis < tensor.dim()) return axis < 0 ? axis + tensor.dim() : axis;
  throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": axis ", axis, " of a tensor of shape ", tensor.sizes(),
                                                         "; it has ", tensor.dim(), " axes"));
}

at::Tensor divide_no_nan(const at::Tensor& numerator, const at::Tensor& denominator) {
  const auto is_zero = denominator == 0;
  return (numerator / denominator.masked_fill(is_zero, 1)).masked_fill(is_zero, 0);
}

}  // namespace lockstep::losses
