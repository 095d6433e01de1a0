#pragma once

#include <sched.h>

#include <chrono>
#include <ctime>

namespace lockstep {

// For a loop that asks again and again, where nobody can wake it: asks often at first, leaves the core to others that
// want it after some microseconds, and sleeps between the questions once `patience` is over.
class Backoff {
 public:
  explicit Backoff(std::chrono::nanoseconds patience) : patience_(patience) {}

  // Call after each question whose answer was no.
  void pause() noexcept {
    if (asked_ < kSpins) {
      ++asked_;
      return;
    }
    if (asked_ == kSpins) {
      ++asked_;
      end_ = Clock::now() + patience_;
    }
    if (Clock::now() < end_) {
      sched_yield();
      return;
    }
    const timespec step{0, 50'000};
    nanosleep(&step, nullptr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 100;

  const std::chrono::nanoseconds patience_;
  int asked_ = 0;
  Clock::time_point end_;
};

}  // namespace lockstep
