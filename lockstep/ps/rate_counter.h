#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

#include "lockstep/base/deadline.h"

namespace lockstep::ps {

// How often something happened, and how often in a second of the last ten. Thread-safe.
class RateCounter {
 public:
  void add(std::uint64_t count) {
    const auto now = second();
    const std::lock_guard lock(mu_);
    auto& slot = slots_[static_cast<std::size_t>(now) % slots_.size()];
    if (slot.first != now) slot = {now, 0};
    slot.second += count;
    total_ += count;
  }
  std::uint64_t total() const {
    const std::lock_guard lock(mu_);
    return total_;
  }
  double per_second() const {
    const auto now = second();
    const std::lock_guard lock(mu_);
    std::uint64_t recent = 0;
    for (const auto& [when, count] : slots_)
      if (when < now && when >= now - kSeconds) recent += count;
    return static_cast<double>(recent) / kSeconds;
  }

 private:
  static constexpr std::int64_t kSeconds = 10;
  static std::int64_t second() {
    return std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now().time_since_epoch()).count();
  }

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::array<std::pair<std::int64_t, std::uint64_t>, kSeconds + 1> slots_{};
  std::uint64_t total_ = 0;
};

}  // namespace lockstep::ps
