#pragma once

#include <cstddef>

namespace lockstep {

// Memory for tensors: aligned to 64 bytes, from malloc.
//
// Note [blocks]
// 1. A training step frees and asks for the same sizes again and again. A freed block of up to 1 MB is kept by the
//    thread that freed it, for its next one of that size class: the memory that was used last is used first.
// 2. Classes are a quarter of a power of two apart, so a block is at most a quarter larger than what was asked for.
// 3. A thread keeps at most 32 MB; what is beyond, and everything when the thread ends, goes back to malloc.
// 4. Under sanitizers nothing is kept, so that they see every use of freed memory.
void* allocate_block(std::size_t bytes) noexcept;  // null: there is no memory
void free_block(void* data) noexcept;              // null is nothing; from any thread

// What the calling thread keeps, in bytes.
std::size_t kept_block_bytes() noexcept;

}  // namespace lockstep
