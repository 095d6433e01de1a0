#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace lockstep {

// How far another machine's clock is ahead of this one's, from questions and answers: the quickest of the last few counts,
// since its answer was on the way for the shortest time.
class ClockOffset {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  // This machine's clock, since 1970.
  static nanoseconds clock();

  // The other clock showed `there` between `sent` and `received` of this one's.
  void add(nanoseconds sent, nanoseconds there, nanoseconds received);

  // Zero before the first answer.
  nanoseconds value() const { return best().offset; }
  // By how much it may be wrong: half of the way there and back.
  nanoseconds error() const { return best().round_trip / 2; }

 private:
  struct Answer {
    nanoseconds round_trip = nanoseconds::max();
    nanoseconds offset{0};
  };
  const Answer& best() const;

  std::array<Answer, 16> last_ = {};
  std::size_t next_ = 0;
};

}  // namespace lockstep
