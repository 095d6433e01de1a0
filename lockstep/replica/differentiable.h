#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/collective/group.h"

// Collectives that autograd can go back through.

namespace lockstep::internal {

// SUM or MEAN of contiguous tensors over the group. The gradient is the same reduction of the gradients.
std::vector<at::Tensor> differentiable_all_reduce(Group& group, ReduceOp op, const std::vector<at::Tensor>& values);

// Concatenation along `axis` in rank order. The gradient is this rank's part of the sum of the gradients.
at::Tensor differentiable_all_gather(Group& group, const at::Tensor& value, std::int64_t axis);

}  // namespace lockstep::internal
