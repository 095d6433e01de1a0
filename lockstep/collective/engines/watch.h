#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
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
  // `names`: by peer, for messages; those without one are ranks.
  explicit Watch(int size, std::vector<std::string> names = {}) : names_(std::move(names)), losses_(size) {}

  std::string name_of(int peer) const {
    const auto place = static_cast<std::size_t>(peer);
    return place < names_.size() ? names_[place] : "rank " + std::to_string(peer);
  }

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
  const std::vector<std::string> names_;

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::optional<Error> stopped_;
  std::vector<std::optional<Error>> losses_;
  std::set<Waiter*> waiters_;
};

}  // namespace lockstep
