#pragma once

#include <chrono>

namespace lockstep {

// A point in time after which a wait gives up. Copyable; cheap.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::nanoseconds duration) { return Deadline(Clock::now() + duration); }

  bool has_passed() const { return Clock::now() >= time_; }
  std::chrono::nanoseconds remaining() const { return time_ - Clock::now(); }
  Clock::time_point time() const { return time_; }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}

  Clock::time_point time_;
};

}  // namespace lockstep
