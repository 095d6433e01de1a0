#pragma once

#include <functional>
#include <memory>

#include "lockstep/fwd.h"

namespace lockstep::internal {

// Calls `hook` on the thread that runs backward(), each time this parameter's gradient has been accumulated.
// The hook stays until the returned token is gone.
std::shared_ptr<void> on_gradient_ready(const at::Tensor& parameter, std::function<void()> hook);

// Calls `hook` just before a gradient is accumulated into the parameter's.
std::shared_ptr<void> before_gradient(const at::Tensor& parameter, std::function<void()> hook);

}  // namespace lockstep::internal
