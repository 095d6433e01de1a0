#pragma once

#include <cstdint>
#include <random>

namespace lockstep {

// A number that nobody can guess, from the system's source.
inline std::uint64_t unguessable_number() {
  std::random_device source;
  return (static_cast<std::uint64_t>(source()) << 32) | source();
}

}  // namespace lockstep
