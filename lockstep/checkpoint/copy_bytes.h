#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

struct ByteCopy {
  std::byte* to = nullptr;
  std::span<const std::byte> from;
};

// All of them, on two threads where there is much: one does not reach what the memory can do.
void copy_bytes(std::span<const ByteCopy> copies);

}  // namespace lockstep
