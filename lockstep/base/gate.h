#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/base/deadline.h"

namespace lockstep {

// A counter that threads can wait on, for hand-overs of well under a microsecond.
//
// A waiter spins briefly, then yields, then sleeps in the kernel until the counter moves or the deadline passes.
// Long spinning is ruinous as soon as there are more threads than cores; sleeping at once costs 20 to 40
// microseconds for the wake-up. The mixture costs 0.2 to 8.
// `is_shared`: in memory that several processes see; all zero bytes are a new gate there.
template <bool is_shared>
class BasicGate {
 public:
  std::uint32_t value() const noexcept { return word_.load(std::memory_order_acquire); }

  // Moves the counter on and wakes whoever sleeps. Everything written before is seen by the threads that leave wait().
  void advance() noexcept;

  // Waits until the counter differs from `seen`. Returns false when the deadline passed first.
  bool wait(std::uint32_t seen, const Deadline& deadline) noexcept;

  // Spins and yields only. Returns false when the counter did not move in that time: then compute a deadline and wait().
  bool wait_briefly(std::uint32_t seen) const noexcept;

  // Wakes whoever sleeps, without moving the counter: they look again at what else ends their wait.
  void disturb() noexcept;

  // One sleep in the kernel, until the counter moves, disturb(), or `limit`; or for no reason.
  void doze(std::uint32_t seen, std::chrono::nanoseconds limit) noexcept;

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

using Gate = BasicGate<false>;
using ProcessGate = BasicGate<true>;

}  // namespace lockstep
