#pragma once

namespace lockstep {

// Makes LibTorch take the memory of CPU tensors from malloc, for the whole process. LibTorch asks for aligned memory by
// posix_memalign, which in glibc before 2.38 goes past the thread's cache and splits and merges blocks for every tensor:
// 2 to 4 % of a small model's step. Tensors that exist already keep what they have.
void allocate_tensors_with_malloc();

}  // namespace lockstep
