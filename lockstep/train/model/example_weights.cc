#include "lockstep/train/model/example_weights.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

// Whether every row is one class's, or one of chances: not negative, and 1 in sum.
bool are_one_hot(const at::Tensor& target) {
  constexpr double kRounding = 1e-2;  // of float16 over a thousand classes
  const auto values = target.to(at::kDouble);
  return (values >= 0).all().item<bool>() && ((values.sum(-1) - 1).abs() < kRounding).all().item<bool>();
}

bool are_whole(const at::Tensor& target) {
  return !target.is_floating_point() || (at::isfinite(target) & (target == target.floor())).all().item<bool>();
}

}  // namespace

void require_finite(const ClassWeights& weights) {
  for (const auto& [label, weight] : weights)
    if (!std::isfinite(weight))
      throw Error(ErrorCode::kInvalidArgument,
                  str("class_weight: the weight of class ", label, " is ", weight, "; weights are finite numbers"));
}

at::Tensor weights_of_classes(const at::Tensor& target, const ClassWeights& weights) {
  const bool is_one_hot = target.dim() > 1 && target.size(-1) > 1;
  const bool is_known = !target.is_cpu() || (is_one_hot ? are_one_hot(target) : are_whole(target));
  const auto labels = (is_one_hot ? target.argmax(-1) : target).to(at::kLong).reshape({target.size(0), -1});
  if (!is_known || labels.size(1) != 1)
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str("class_weight: the targets, ", target.scalar_type(), " of shape ", target.sizes(),
                      ", are no classes; each example needs a whole number or a one-hot row. Targets of another kind are "
                      "weighed by sample weights"));
  auto all = at::ones({target.size(0)}, target.options().dtype(at::kFloat));
  for (const auto& [label, weight] : weights) all.masked_fill_(labels.select(1, 0) == label, weight);
  return all;
}

void require_finite_rows(const at::Tensor& sample_weights) {
  if (!sample_weights.is_cpu() || !sample_weights.is_floating_point() || sample_weights.dim() == 0) return;
  if (std::isfinite(sample_weights.sum().item<double>())) return;
  const auto is_bad = at::logical_not(at::isfinite(sample_weights)).reshape({sample_weights.size(0), -1}).any(1);
  if (!is_bad.any().item<bool>()) return;  // only their sum has no end
  const auto row = is_bad.to(at::kByte).argmax().item<std::int64_t>();
  throw Error(ErrorCode::kInvalidArgument, lockstep::str("a sample weight in row ", row,
                                                         " of a replica's part of the batch is NaN or "
                                                         "infinite; weights are finite numbers"));
}

}  // namespace lockstep::internal
