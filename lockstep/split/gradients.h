#pragma once

#include <string>

#include "lockstep/split/split_tensor.h"

namespace lockstep::split {

// Makes the front of a value part of the graph of its parts: requires_grad() tells of them, and backward() of it, which
// LibTorch does not ask us for, gives each part its gradient.
void connect(const at::Tensor& front, const SplitValue& value);

// Throws kUnimplemented where LibTorch was told to keep a gradient of the front, not of its parts. `what`: the operation.
void require_own_gradients(const at::Tensor& front, const std::string& what);

}  // namespace lockstep::split
