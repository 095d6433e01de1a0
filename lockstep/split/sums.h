#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/split/split_tensor.h"

namespace lockstep::split {

// Of tiles that differ only along `dims` one sum each, in the place of the first: ((a + b) + (c + d)) + ..., on its device.
// `part`: what tile k gives to it. The caller says the tiling of the result, which has a tile for each sum.
SplitValue sums_of_tiles(const SplitValue& value, const std::vector<std::int64_t>& dims,
                         const std::function<at::Tensor(std::size_t k)>& part);

}  // namespace lockstep::split
