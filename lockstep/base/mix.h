#pragma once

#include <cstdint>

namespace lockstep {

// A seed for stream `stream` of `seed`: neighbouring seeds and streams give unrelated ones (the finaliser of splitmix64).
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (stream + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace lockstep
