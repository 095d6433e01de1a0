#include "lockstep/device/tensor_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;  // what LibTorch's own allocator gives
constexpr std::size_t kExtra = kAlignment + sizeof(void*);

void free_tensor(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(static_cast<void**>(data)[-1]);
}

// An aligned address inside a larger block of malloc's, whose address stands just before it.
void* allocate_tensor(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = bytes < PTRDIFF_MAX - kExtra ? std::malloc(bytes + kExtra) : nullptr;
  if (block == nullptr) {
    c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    TORCH_CHECK(false, "there is no memory for a tensor of ", bytes, " bytes");
  }
  const auto first = reinterpret_cast<std::uintptr_t>(block) + sizeof(void*);
  void* data = reinterpret_cast<void*>((first + kAlignment - 1) / kAlignment * kAlignment);
  static_cast<void**>(data)[-1] = block;
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
