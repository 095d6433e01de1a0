#include "lockstep/base/gate.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

void sleep_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds limit) noexcept {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  const timespec timeout{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
}

}  // namespace

void Gate::advance() noexcept {
  // Both orders are sequentially consistent: either the waiter sees the new value before it sleeps, or we see the sleeper.
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0)
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool Gate::wait_briefly(std::uint32_t seen) const noexcept {
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

bool Gate::wait(std::uint32_t seen, const Deadline& deadline) noexcept {
  if (wait_briefly(seen)) return true;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (word_.load(std::memory_order_seq_cst) == seen) {
    const auto left = deadline.remaining();
    if (left.count() <= 0) break;
    sleep_while_equal(word_, seen, left);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return value() != seen;
}

}  // namespace lockstep
