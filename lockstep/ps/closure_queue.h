#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/staleness_bound.h"

namespace lockstep::ps {

// A piece of work that a queue hands to workers. Whoever took it from the queue says how it ended; the queue itself only says
// that it will not be run.
class Closure {
 public:
  virtual ~Closure() = default;

  // It is not run, because another one failed, or because the queue has come to its end. Called once at most, without a lock.
  virtual void mark_cancelled() noexcept = 0;
  virtual void mark_aborted() noexcept = 0;
  // It is not run, because nobody can: that is its error, too. Called as they are.
  virtual void mark_abandoned(const std::exception_ptr& why) noexcept = 0;

  // What it sends, about.
  virtual std::size_t bytes() const noexcept { return 0; }
  // Whether a worker gets it without others.
  virtual bool goes_alone() const noexcept { return false; }
};

using ClosurePtr = std::shared_ptr<Closure>;

// How much a worker takes at a time.
struct Appetite {
  std::size_t closures = 1;
  std::size_t bytes = std::size_t{4} << 20;  // no further one when there are so many; the first is taken whatever its size
};

// What a worker took: all of it is in flight until it was told of each how it ended.
struct Taken {
  std::vector<ClosurePtr> closures = {};
  std::stop_token cancelled = {};  // somebody waits for it to end: nothing more of it is wanted
  std::uint64_t began = 0;         // for who says how it ended
};

// Closures on their way to workers: queued -> in flight -> finished | failed | put back.
//
// The first failure is remembered, later ones are dropped. The next put, wait or done cancels everything (queued closures
// are not run, those in flight are asked to end), waits until nothing is in flight, throws the failure once, and leaves the
// queue empty and as new. Thread-safe. After stop() they throw kCancelled.
class ClosureQueue {
 public:
  static constexpr std::size_t kCapacity = 256 * 1024;

  // Throws kInvalidArgument for a capacity of 0. With `max_staleness` closures stay queued while they could make one in flight
  // more stale than that: see Note [bounded staleness].
  explicit ClosureQueue(std::size_t capacity = kCapacity, std::optional<std::size_t> max_staleness = std::nullopt);
  ~ClosureQueue();
  ClosureQueue(const ClosureQueue&) = delete;
  ClosureQueue& operator=(const ClosureQueue&) = delete;

  // Waits while the queue is full. When it throws (the failure; kDeadlineExceeded) `closure` is cancelled.
  void put(const ClosurePtr& closure, const Deadline& deadline);
  // Waits until nothing is queued and nothing in flight. Throws the failure; kDeadlineExceeded with what there still is.
  void wait(const Deadline& deadline);
  // Whether nothing is queued or in flight. Does not wait, but for closures in flight when there is a failure to throw.
  bool done(const Deadline& deadline);

  // For workers. Nothing: none came in time, or stop(). `began` is Taken's; a queue without max_staleness does not look at it.
  Taken get(const Appetite& appetite, const Deadline& deadline);
  void mark_finished(std::size_t count = 1, std::uint64_t began = 0);
  void mark_failed(std::exception_ptr failure, std::uint64_t began = 0);
  // Before its closure, which is still in flight, is told: who learns of the failure there finds it in the next put, wait or
  // done.
  void note_failure(const std::exception_ptr& failure);
  // Closures whose worker is gone, or that it did not get to: they are the next ones, in this order. After a failure they are
  // cancelled.
  void put_back(const std::vector<ClosurePtr>& closures, std::uint64_t began = 0);

  // There is nobody to work: `failure` is the error of what is queued, at once, and the next put, wait or done throws it.
  void abandon(const std::exception_ptr& failure);
  // The end: queued closures are aborted, those in flight asked to end, and who waits throws.
  void stop();

  // How many there are now.
  struct Counts {
    std::size_t queued = 0;
    std::size_t in_flight = 0;
  };
  Counts counts() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Waits until `condition` holds; false: the deadline passed first.
  template <typename Condition>
  bool wait_for(Lock& lock, const Deadline& deadline, Condition condition);
  bool is_idle() const { return queued_.empty() && in_flight_ == 0; }
  void throw_failure_if_any(Lock& lock, const Deadline& deadline);
  void end_flight(Lock& lock, std::size_t count, std::uint64_t began);
  [[noreturn]] void throw_late(const char* doing, std::size_t queued, std::size_t in_flight) const;

  // Const after construction.
  const std::size_t capacity_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::deque<ClosurePtr> queued_;
  std::size_t in_flight_ = 0;
  StalenessBound staleness_;
  std::exception_ptr failure_;  // not yet thrown
  bool is_throwing_ = false;    // somebody cancels everything; others wait for him
  bool is_stopped_ = false;
  std::stop_source cancel_;  // of what is in flight now

  std::condition_variable offered_;  // there is something to take
  std::condition_variable changed_;  // for put, wait and done
};

}  // namespace lockstep::ps
