#pragma once

#include <cstddef>

namespace lockstep {

// Memory for tensors: aligned to 64 bytes, from malloc.
//
// Note [blocks]
// 1. A training step frees and asks for the same sizes again and again. A freed block of up to 1 MB is kept by the
//    thread that freed it, for its next one of that size class: the memory that was used last is used first.
// 2. Classes are a quarter of a power of two apart, so a block is at most a quarter larger than what was asked for.
// 3. A block of 16 KB and more that another thread had asked for goes to a store of all threads, where that one finds it
//    again: batches are made on one thread and freed on another, which would keep them in place of what it needs itself.
// 4. A thread keeps at most 32 MB, the store too; what is beyond, and everything of a thread that ends, goes back to malloc.
// 5. Under sanitizers nothing is kept, so that they see every use of freed memory.
void* allocate_block(std::size_t bytes) noexcept;  // null: there is no memory
void free_block(void* data) noexcept;              // null is nothing; from any thread

// What the calling thread keeps, and what the store of all threads has, in bytes.
std::size_t kept_block_bytes() noexcept;
std::size_t shared_block_bytes() noexcept;

}  // namespace lockstep
