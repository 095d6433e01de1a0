#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep::tool {

// When a task that has ended may be started again, so that one which ends at once does not spin: a second after its last start,
// then two, up to half a minute. One that ran longer than that is started at once, and with the first pause again.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Backoff(Clock::time_point start) : start_(start) {}

  // Of a task that has ended at `now`: its next start.
  Clock::time_point next_start(Clock::time_point now) {
    if (now - start_ > kLongest) pause_ = kShortest;
    start_ = std::max(now, start_ + pause_);
    pause_ = std::min(2 * pause_, kLongest);
    return start_;
  }

 private:
  static constexpr Clock::duration kShortest = std::chrono::seconds(1);
  static constexpr Clock::duration kLongest = std::chrono::seconds(30);

  Clock::time_point start_;
  Clock::duration pause_ = kShortest;
};

}  // namespace lockstep::tool
