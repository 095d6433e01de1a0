#include "lockstep/collective/result_pool.h"

#include <ATen/ATen.h>

#include <array>

namespace lockstep {
namespace {

constexpr std::int64_t kSmallestKept = 64 << 10;
constexpr std::int64_t kLarge = 4 << 20;

// The last few results of one thread.
template <std::size_t kSize>
class Pool {
 public:
  at::Tensor take(const at::Tensor& like) {
    for (const auto& kept : tensors_)
      if (is_free(kept, like)) return kept.alias();
    auto fresh = at::empty(like.sizes(), like.options().requires_grad(false));
    tensors_[next_] = fresh;
    next_ = (next_ + 1) % kSize;
    return fresh.alias();
  }

 private:
  static bool is_free(const at::Tensor& kept, const at::Tensor& like) {
    return kept.defined() && kept.use_count() == 1 && kept.storage().use_count() == 1 && kept.sizes() == like.sizes() &&
           kept.scalar_type() == like.scalar_type();
  }

  std::array<at::Tensor, kSize> tensors_;
  std::size_t next_ = 0;
};

thread_local Pool<8> t_medium;
thread_local Pool<2> t_large;

}  // namespace

at::Tensor empty_result_like(const at::Tensor& value) {
  const auto bytes = value.numel() * static_cast<std::int64_t>(value.element_size());
  if (bytes < kSmallestKept || !value.is_cpu()) return at::empty_like(value);
  return bytes < kLarge ? t_medium.take(value) : t_large.take(value);
}

}  // namespace lockstep
