#include "lockstep/collective/result_pool.h"

#include <ATen/ATen.h>

#include <array>

namespace lockstep {
namespace {

constexpr std::int64_t kSmallestKept = 64 << 10;
constexpr std::int64_t kLarge = 4 << 20;

// The memory of one thread's last few results. What is kept is memory, not tensors: a result that were a view of a kept
// tensor would share its place in the graph, and could not be detached in place.
template <std::size_t kSize>
class Pool {
 public:
  at::Tensor take(const at::Tensor& like, std::size_t bytes) {
    for (const auto& kept : storages_)
      if (kept.use_count() == 1 && kept.nbytes() == bytes)
        return at::empty({0}, like.options()).set_(kept, 0, like.sizes(), like.strides());
    auto fresh = at::empty_like(like);
    storages_[next_] = fresh.storage();
    next_ = (next_ + 1) % kSize;
    return fresh;
  }

 private:
  std::array<at::Storage, kSize> storages_;
  std::size_t next_ = 0;
};

thread_local Pool<8> t_medium;
thread_local Pool<2> t_large;

}  // namespace

at::Tensor empty_result_like(const at::Tensor& value) {
  const auto bytes = value.numel() * static_cast<std::int64_t>(value.element_size());
  if (bytes < kSmallestKept || !value.is_cpu() || !value.is_non_overlapping_and_dense()) return at::empty_like(value);
  const auto size = static_cast<std::size_t>(bytes);
  return bytes < kLarge ? t_medium.take(value, size) : t_large.take(value, size);
}

}  // namespace lockstep
