#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

namespace lockstep::ps {

// How stale gradients were, in powers of two: see StoreStatistics::staleness. Thread-safe.
class StalenessHistogram {
 public:
  // A gradient of values of version `made_of`, which was the update that made version `now`.
  void add(std::uint64_t made_of, std::uint64_t now) noexcept {
    // A variable that was made anew has fewer updates than the gradient knows of.
    const auto missed = now > made_of ? now - made_of - 1 : 0;
    counts_[static_cast<std::size_t>(std::bit_width(missed))].fetch_add(1, std::memory_order_relaxed);
  }

  std::vector<std::uint64_t> counts() const {
    std::vector<std::uint64_t> all;
    for (const auto& count : counts_) all.push_back(count.load(std::memory_order_relaxed));
    while (!all.empty() && all.back() == 0) all.pop_back();
    return all;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 65> counts_{};  // by the number's bits
};

}  // namespace lockstep::ps
