#pragma once

namespace lockstep {

// Makes LibTorch take the memory of CPU tensors from malloc, by way of blocks that threads keep (block_cache.h), for the
// whole process. LibTorch itself asks for aligned memory by posix_memalign, which in glibc before 2.38 goes past the
// thread's cache and splits and merges blocks for every tensor: 3 to 5 % of a small model's step. Tensors that exist
// already keep what they have. Thread-safe.
void allocate_tensors_with_malloc();

}  // namespace lockstep
