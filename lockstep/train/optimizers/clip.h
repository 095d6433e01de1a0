#pragma once

#include "lockstep/fwd.h"

// Clipping of one gradient, dense or sparse, in its own memory.

namespace lockstep {

// The square of its norm, in float64.
double squared_norm(const at::Tensor& gradient);

// Scales it down so that its norm is at most this.
void clip_norm(at::Tensor& gradient, double most);

// No element is larger than this, or smaller than its negative. Repeated rows of a sparse one are added up before.
void clip_value(at::Tensor& gradient, double most);

}  // namespace lockstep
