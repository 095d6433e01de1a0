#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// In an order that matters: a module's own, mostly.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace lockstep
