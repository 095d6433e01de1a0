#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

// Somebody in a wait that can be ended from outside.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // Ends the wait that is under way, else the next one: it must look at the watch and decide anew. From any thread.
  virtual void wake() noexcept = 0;
};

// What those who wait in an engine must know: whether it is stopped, and which peers are gone. Thread-safe.
class Watch {
 public:
  explicit Watch(int size) : losses_(size) {}

  void add(Waiter* waiter) {
    const std::scoped_lock lock(mu_);
    waiters_.insert(waiter);
  }
  void remove(Waiter* waiter) {
    const std::scoped_lock lock(mu_);
    waiters_.erase(waiter);
  }

  // From now on everything throws `why`; only the first reason counts.
  void stop(const Error& why) {
    const std::scoped_lock lock(mu_);
    if (!stopped_) stopped_ = why;
    for (auto* waiter : waiters_) waiter->wake();
  }
  void lose(int peer, const Error& why) {
    const std::scoped_lock lock(mu_);
    if (!losses_[peer]) losses_[peer] = why;
    for (auto* waiter : waiters_) waiter->wake();
  }

  bool is_stopped() const noexcept {
    const std::scoped_lock lock(mu_);
    return stopped_.has_value();
  }
  void throw_if_stopped() const {
    const std::scoped_lock lock(mu_);
    if (stopped_) throw Error(*stopped_);
  }
  // Why the peer is gone; nothing when it is there. Throws if the engine is stopped.
  std::optional<Error> loss_of(int peer) const {
    const std::scoped_lock lock(mu_);
    if (stopped_) throw Error(*stopped_);
    return losses_[peer];
  }

 private:
  mutable std::mutex mu_;
  // Guarded by mu_.
  std::optional<Error> stopped_;
  std::vector<std::optional<Error>> losses_;
  std::set<Waiter*> waiters_;
};

}  // namespace lockstep
