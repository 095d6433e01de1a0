#pragma once

#include <chrono>

namespace lockstep {

// How long this thread has waited for other workers, in all the calls that all of them make. Whoever asks twice knows how much
// of the time between was spent so. What the calls do themselves, such as moving bytes, is in it: it is much the same for all
// workers, and what differs is who waits for whom.
class WaitClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Of the calling thread, since it began.
  static std::chrono::nanoseconds total() noexcept { return t_total; }

  // A wait that is under way while it lives. Not one inside another.
  class [[nodiscard]] Scope {
   public:
    Scope() noexcept : start_(Clock::now()) {}
    ~Scope() { t_total += Clock::now() - start_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Clock::time_point start_;
  };

 private:
  static inline thread_local std::chrono::nanoseconds t_total{0};
};

}  // namespace lockstep
