#include "lockstep/device/tensor_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "lockstep/device/block_cache.h"

namespace lockstep {
namespace {

void free_tensor(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  free_block(data);
}

void* allocate_tensor(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = allocate_block(bytes);
  if (data == nullptr) {
    c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    TORCH_CHECK(false, "there is no memory for a tensor of ", bytes, " bytes");
  }
  c10::profiledCPUMemoryReporter().New(data, bytes);
  return data;
}

c10::DataPtr allocate_data(std::size_t bytes) {
  void* data = allocate_tensor(bytes);
  return {data, data, &free_tensor, c10::Device(c10::kCPU)};
}

// Without `override`: allocate() is const in LibTorch 1.13 and is not in later ones, which also have copy_data().
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsuggest-override"
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
class MallocAllocator final : public c10::Allocator {
 public:
  virtual c10::DataPtr allocate(std::size_t bytes) const { return allocate_data(bytes); }
  virtual c10::DataPtr allocate(std::size_t bytes) { return allocate_data(bytes); }
  virtual void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
};
#pragma GCC diagnostic pop

}  // namespace

void allocate_tensors_with_malloc() {
  static auto* const allocator = new MallocAllocator;  // outlives the last tensor
  c10::SetCPUAllocator(allocator);
}

}  // namespace lockstep
