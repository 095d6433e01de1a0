#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {

// The elements [first, second) of `count` that rank r of `size` sums: whole cache lines, equal parts.
inline std::pair<std::int64_t, std::int64_t> chunk_of(std::int64_t count, std::int64_t element_bytes, int rank, int size) {
  constexpr std::int64_t kCacheLine = 64;
  const auto line = std::max<std::int64_t>(1, kCacheLine / element_bytes);
  const auto lines = (count + line - 1) / line;
  return {std::min(count, lines * rank / size * line), std::min(count, lines * (rank + 1) / size * line)};
}

}  // namespace lockstep
