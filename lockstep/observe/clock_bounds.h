#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep {

// How far another process's clock is behind this one's, from meetings of both: nobody leaves a meeting before all have come,
// so each has come, by whatever clock, before the other has left. Every meeting bounds the difference from both sides, and
// the narrowest bounds of all count.
class ClockBounds {
 public:
  // One side of a meeting, by its own clock, in nanoseconds.
  struct Visit {
    std::int64_t came = 0;
    std::int64_t left = 0;
  };

  void add(const Visit& here, const Visit& there) {
    least_ = std::max(least_, here.came - there.left);
    most_ = std::min(most_, here.left - there.came);
  }

  // To be added to the other clock's times to have this one's. Zero before the first meeting.
  std::int64_t offset() const { return has_any() ? least_ + (most_ - least_) / 2 : 0; }
  // By how much that may be wrong at most.
  std::int64_t error() const { return has_any() ? (most_ - least_ + 1) / 2 : 0; }
  bool holds(std::int64_t offset) const { return least_ <= offset && offset <= most_; }

 private:
  bool has_any() const { return most_ != std::numeric_limits<std::int64_t>::max(); }

  std::int64_t least_ = std::numeric_limits<std::int64_t>::min();
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace lockstep
