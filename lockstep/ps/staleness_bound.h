#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::ps {

// How many closures may be handed out, so that none gets more stale than allowed. A closure's staleness is the number of others
// that end between its start and its end: so many updates its own knows nothing of. Used under its owner's lock.
//
// Note [bounded staleness]
// 1. For a closure in flight, (ended since it was handed out) + (others in flight) is the most that its staleness can become
//    if nothing more is handed out. An end leaves the sum as it is, a hand-out adds one: so it is enough to look at hand-outs.
// 2. The one in flight for longest has seen the most end: its sum is the largest, and is the only one to look at.
// 3. A closure that is put back counts as ended: its update may have been done before its worker was lost.
// 4. A worker begins after the hand-out and ends before it is known here: what is counted is never less than what was.
class StalenessBound {
 public:
  explicit StalenessBound(std::optional<std::size_t> most) : most_(most) {}

  // How many can be handed out now; 0: one in flight must end first.
  std::size_t room() const noexcept {
    if (!most_) return std::numeric_limits<std::size_t>::max();
    if (in_flight_ == 0) return *most_ < std::numeric_limits<std::size_t>::max() ? *most_ + 1 : *most_;
    const auto sum = static_cast<std::size_t>(ended_ - flights_.begin()->first) + in_flight_ - 1;
    return sum < *most_ ? *most_ - sum : 0;
  }

  // What one worker should take of `room()`: the others want some, too.
  std::size_t share(std::size_t appetite) const noexcept {
    constexpr std::size_t kWorkers = 8;
    return most_ ? std::min(appetite, std::max<std::size_t>(1, room() / kWorkers)) : appetite;
  }

  // REQUIRES: count <= room(). Returns when that was, for end().
  std::uint64_t begin(std::size_t count) {
    if (!most_) return 0;
    flights_[ended_] += count;
    in_flight_ += count;
    return ended_;
  }
  // Throws kInternal unless so many of those that began then have not ended.
  void end(std::uint64_t began, std::size_t count) {
    if (!most_ || count == 0) return;
    const auto found = flights_.find(began);
    if (found == flights_.end() || found->second < count)
      throw Error(ErrorCode::kInternal, "closures ended that were not handed out; say when they began, as Taken has it");
    if ((found->second -= count) == 0) flights_.erase(found);
    in_flight_ -= count;
    ended_ += count;
  }

 private:
  // Const after construction.
  std::optional<std::size_t> most_;

  // Guarded by the owner.
  std::uint64_t ended_ = 0;
  std::size_t in_flight_ = 0;
  std::map<std::uint64_t, std::size_t> flights_;  // by how many had ended when they began: how many are in flight
};

}  // namespace lockstep::ps
