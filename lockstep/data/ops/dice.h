#pragma once

#include <cstdint>
#include <limits>

#include "lockstep/base/mix.h"
#include "lockstep/data/position.h"

namespace lockstep::data::internal {

// Random numbers that are the same everywhere, and whose position is one number.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}

  // In [0, bound).
  std::uint64_t below(std::uint64_t bound) {
    const auto limit = std::numeric_limits<std::uint64_t>::max() - std::numeric_limits<std::uint64_t>::max() % bound;
    auto value = mix(seed_, drawn_++);
    while (value >= limit) value = mix(seed_, drawn_++);
    return value % bound;
  }

  // In [0, 1).
  double fraction() { return static_cast<double>(mix(seed_, drawn_++) >> 11) * 0x1p-53; }

  void save(PositionWriter& to) const {
    to.put(seed_);
    to.put(drawn_);
  }
  void restore(PositionReader& from) {
    seed_ = from.unsigned_number();
    drawn_ = from.unsigned_number();
  }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

// From LibTorch's default generator, so that torch::manual_seed() makes what is given no seed repeatable as well.
std::uint64_t draw_seed();

}  // namespace lockstep::data::internal
