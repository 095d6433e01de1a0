#pragma once

#include "lockstep/fwd.h"

namespace lockstep {

// Whether `value` is a tensor with ordinary memory: defined, strided, not quantised, not on the meta device.
bool is_dense(const at::Tensor& value);
// Throws kInvalidArgument unless it is. `what` begins the message.
void require_dense(const at::Tensor& value, const char* what);

// The elements of `value` one after the other in memory, with nothing left to be conjugated or negated on reading.
at::Tensor in_memory(const at::Tensor& value);

}  // namespace lockstep
