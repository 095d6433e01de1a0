#pragma once

#include <string_view>

namespace lockstep::internal {

// Takes as long for a wrong secret as for a right one.
inline bool is_same_secret(std::string_view given, std::string_view ours) {
  unsigned char difference = given.size() == ours.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ (ours.empty() ? '\0' : ours[i % ours.size()]));
  return difference == 0;
}

}  // namespace lockstep::internal
