#pragma once

#include "lockstep/split/split_tensor.h"

namespace lockstep::split {

// Makes the front of a value part of the graph of its parts: requires_grad() tells of them, and backward() of it, which
// LibTorch does not ask us for, gives each part its gradient.
void connect(const at::Tensor& front, const SplitValue& value);

}  // namespace lockstep::split
