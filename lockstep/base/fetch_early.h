#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep {

// Asks for memory that will be read soon, from its beginning on; the processor notices by itself how it goes on. For whoever
// reads pieces from all over a large table: while one is copied the next one is on its way.
inline void fetch_early(const void* memory, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kMost = 16 * kLine;
  const auto* from = static_cast<const char*>(memory);
  for (std::size_t at = 0; at < std::min(bytes, kMost); at += kLine) __builtin_prefetch(from + at);
}

}  // namespace lockstep
