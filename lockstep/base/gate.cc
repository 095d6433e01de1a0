#include "lockstep/base/gate.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep {
namespace {

constexpr int kSpins = 100;
constexpr int kYields = 200;

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

constexpr int kWait = FUTEX_WAIT;
constexpr int kWake = FUTEX_WAKE;

std::uint32_t* address_of(std::atomic<std::uint32_t>& word) noexcept {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&word);
}

}  // namespace

template <bool is_shared>
void BasicGate<is_shared>::doze(std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
  const timespec timeout{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, address_of(word_), is_shared ? kWait : kWait | FUTEX_PRIVATE_FLAG, seen, &timeout, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

template <bool is_shared>
void BasicGate<is_shared>::disturb() noexcept {
  syscall(SYS_futex, address_of(word_), is_shared ? kWake : kWake | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

template <bool is_shared>
void BasicGate<is_shared>::advance() noexcept {
  // Both orders are sequentially consistent: either the waiter sees the new value before it sleeps, or we see the sleeper.
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) disturb();
}

template <bool is_shared>
bool BasicGate<is_shared>::wait_briefly(std::uint32_t seen) const noexcept {
  for (int i = 0; i < kSpins; ++i) {
    if (value() != seen) return true;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value() != seen) return true;
    sched_yield();
  }
  return value() != seen;
}

template <bool is_shared>
bool BasicGate<is_shared>::wait(std::uint32_t seen, const Deadline& deadline) noexcept {
  if (wait_briefly(seen)) return true;
  while (value() == seen) {
    const auto left = deadline.remaining();
    if (left.count() <= 0) break;
    doze(seen, left);
  }
  return value() != seen;
}

template class BasicGate<false>;
template class BasicGate<true>;

}  // namespace lockstep
