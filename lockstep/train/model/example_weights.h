#pragma once

#include <cstdint>
#include <map>

#include "lockstep/fwd.h"

// How much examples count: what fit() is given for classes, and what the data gives for rows.

namespace lockstep::internal {

using ClassWeights = std::map<std::int64_t, double>;

// Throws kInvalidArgument for a weight that is NaN or infinite, naming its class.
void require_finite(const ClassWeights& weights);

// A weight for each row of `target`, which is a class each ([n] or [n, 1]) or a one-hot row each. Throws kInvalidArgument for
// targets that are no classes; on a GPU, where looking would make every step wait, only for their shape.
at::Tensor weights_of_classes(const at::Tensor& target, const ClassWeights& weights);

// Throws kInvalidArgument for sample weights that are NaN or infinite, naming the first such row. On a GPU nobody looks.
void require_finite_rows(const at::Tensor& sample_weights);

}  // namespace lockstep::internal
