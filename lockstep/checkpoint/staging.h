#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

// Memory that is kept from one use to the next: only the first pays for its pages.
class StagingMemory {
 public:
  StagingMemory() = default;
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  // So much will be copied soon: the pages are paid for now. Throws as copy().
  void prepare(std::size_t bytes);

  // Copies all pieces, on two threads where they are large, and makes the spans say where they are now. What was here before is
  // gone. Throws kUnavailable when there is no memory.
  void copy(std::span<std::span<const std::byte>* const> pieces);

 private:
  void reserve(std::size_t bytes);

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
