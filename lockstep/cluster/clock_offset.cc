#include "lockstep/cluster/clock_offset.h"

#include <algorithm>

namespace lockstep {

std::chrono::nanoseconds ClockOffset::clock() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
}

void ClockOffset::add(nanoseconds sent, nanoseconds there, nanoseconds received) {
  const auto round_trip = std::max(nanoseconds(0), received - sent);
  last_[next_++ % last_.size()] = {round_trip, there - sent - round_trip / 2};
}

const ClockOffset::Answer& ClockOffset::best() const { return *std::ranges::min_element(last_, {}, &Answer::round_trip); }

}  // namespace lockstep
