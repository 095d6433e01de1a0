#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/deadline.h"

namespace lockstep::ps {

// A lock that is waited for with a deadline, and may be held for as long as a message to another server takes. Who waits gets
// it in the order of coming.
class TurnGate {
 public:
  class Turn {
   public:
    Turn() = default;
    explicit Turn(TurnGate* gate) : gate_(gate) {}
    ~Turn() { end(); }
    Turn(Turn&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;

    explicit operator bool() const noexcept { return gate_ != nullptr; }
    void end() {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->leave();
    }

   private:
    TurnGate* gate_ = nullptr;
  };

  // False: it did not come in time.
  Turn take(const Deadline& deadline) {
    std::unique_lock lock(mu_);
    const auto mine = next_++;
    waiting_.insert(mine);
    const bool has_come = changed_.wait_until(lock, deadline.time(), [&] { return !is_taken_ && *waiting_.begin() == mine; });
    waiting_.erase(mine);
    if (!has_come) {
      changed_.notify_all();
      return {};
    }
    is_taken_ = true;
    return Turn(this);
  }

 private:
  void leave() {
    const std::lock_guard lock(mu_);
    is_taken_ = false;
    changed_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  bool is_taken_ = false;
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> waiting_;
};

}  // namespace lockstep::ps
