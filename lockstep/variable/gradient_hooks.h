#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/fwd.h"

namespace lockstep::internal {

// Calls `hook(incoming)` on the thread that runs backward(), each time `incoming` has been accumulated into this
// parameter's gradient, which may have taken over its memory. The hook stays until the returned token is gone.
std::shared_ptr<void> on_gradient_ready(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook);

// Calls `hook` just before a gradient is accumulated into the parameter's.
std::shared_ptr<void> before_gradient(const at::Tensor& parameter, std::function<void()> hook);

// What the hooks of a parameter are on; null: none, or LibTorch has dropped it.
const void* accumulator_of(const at::Tensor& parameter);

// Changes with every write that LibTorch counts; tensors of inference mode have none.
std::int64_t version_of(const at::Tensor& tensor);

// After on_gradient_ready's hook was called with `incoming`: whether nothing but the parameter's gradient (and the
// hook's caller, by `incoming`) uses the gradient's memory, so that it may be written to while backward() goes on.
bool owns_memory(const at::Tensor& gradient, const at::Tensor& incoming);

}  // namespace lockstep::internal
