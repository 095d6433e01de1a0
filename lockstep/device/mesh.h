#pragma once

#include <array>
#include <string>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep::internal {

// "[2, 2, 1, 2]", for messages.
inline std::string in_brackets(const std::vector<int>& numbers) { return str("[", join(", ", numbers), "]"); }

// Cell `number` of a box of four dimensions, counted along the dimensions in `order`, the fastest first.
inline std::vector<int> cell(int number, const std::vector<int>& box, const std::array<std::size_t, 4>& order) {
  std::vector<int> coordinates(order.size());
  for (const auto dimension : order) {
    coordinates[dimension] = number % box[dimension];
    number /= box[dimension];
  }
  return coordinates;
}

}  // namespace lockstep::internal
