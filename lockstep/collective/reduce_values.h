#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/collective/tree_sum.h"
#include "lockstep/fwd.h"

// Reductions of values that are all at hand, on the calling thread, in the canonical order.

namespace lockstep {

// The sum of equally shaped tensors, on the first one's device. Throws kInvalidArgument naming the first that differs.
at::Tensor sum_values(std::span<const at::Tensor> values);

// SUM or MEAN. A mean of integers is float64.
at::Tensor reduce_values(ReduceOp op, std::span<const at::Tensor> values);

// Integers that are narrower than 64 bits as int64, so that the sum behind a mean does not overflow.
at::Tensor without_overflow(const at::Tensor& value);

// values / count, where integers become float64.
at::Tensor mean_of_sum(const at::Tensor& sum, std::int64_t count);

// All values one after the other along `axis`. Throws kInvalidArgument when the axis does not exist or another
// dimension differs.
at::Tensor concatenate_values(std::span<const at::Tensor> values, std::int64_t axis);

// What is wrong with values that must have one shape and dtype, if anything. `what` names the call.
std::optional<Error> unequal_values_error(std::span<const at::Tensor> values, const char* what);
// Throws it.
void require_equal_values(std::span<const at::Tensor> values, const char* what);

// outputs[k] = the sum of inputs, elements of the range only, for dense tensors of one dtype and equal memory order.
// Outputs on other devices are copied to.
void tree_sum_tensors(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs, SumRange range);

}  // namespace lockstep
