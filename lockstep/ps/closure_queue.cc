#include "lockstep/ps/closure_queue.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {

ClosureQueue::ClosureQueue(std::size_t capacity, std::optional<std::size_t> max_staleness)
    : capacity_(capacity), staleness_(max_staleness) {
  require(capacity > 0, "a queue of closures must hold one at least");
}

ClosureQueue::~ClosureQueue() { stop(); }

template <typename Condition>
bool ClosureQueue::wait_for(Lock& lock, const Deadline& deadline, Condition condition) {
  const bool holds = changed_.wait_until(lock, deadline.time(), [&] { return is_stopped_ || condition(); });
  if (is_stopped_)
    throw Error(ErrorCode::kCancelled, "the coordinator has been stopped: nothing can be scheduled or waited for");
  return holds;
}

void ClosureQueue::throw_late(const char* doing, std::size_t queued, std::size_t in_flight) const {
  throw Error(ErrorCode::kDeadlineExceeded,
              str(doing, " took longer than its deadline: ", queued, " closures are queued (of at most ", capacity_, "), ",
                  in_flight, " are with workers"));
}

// Note [a failure is thrown once]
// 1. One thread throws; others that come meanwhile wait for it and go on with an empty queue.
// 2. The queue is emptied first, so that workers get nothing of it any more; put_back() cancels while there is a failure.
// 3. What is in flight is asked to end. When the deadline passes before it has, the failure stays for the next call.
// 4. Closures queued meanwhile there are none: put() waits in step 1.
void ClosureQueue::throw_failure_if_any(Lock& lock, const Deadline& deadline) {
  if (!wait_for(lock, deadline, [&] { return !is_throwing_; })) throw_late("cancelling closures", queued_.size(), in_flight_);
  if (!failure_) return;
  is_throwing_ = true;
  const auto dropped = std::exchange(queued_, {});
  auto cancel = cancel_;
  lock.unlock();
  for (const auto& closure : dropped) closure->mark_cancelled();
  cancel.request_stop();  // calls the workers' callbacks, hence without the lock
  lock.lock();
  bool has_ended = false;
  try {
    has_ended = wait_for(lock, deadline, [&] { return in_flight_ == 0; });
  } catch (const Error&) {
    is_throwing_ = false;
    throw;
  }
  is_throwing_ = false;
  changed_.notify_all();
  if (!has_ended) throw_late("cancelling closures", 0, in_flight_);
  cancel_ = std::stop_source();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ClosureQueue::put(const ClosurePtr& closure, const Deadline& deadline) try {
  Lock lock(mu_);
  const auto has_room = [&] { return queued_.size() < capacity_; };
  do {
    const bool is_in_time = wait_for(lock, deadline, [&] { return failure_ || is_throwing_ || has_room(); });
    if (!is_in_time) throw_late("scheduling a closure", queued_.size(), in_flight_);
    throw_failure_if_any(lock, deadline);
  } while (!has_room());  // who waited for another one's failure was maybe not alone
  queued_.push_back(closure);
  offered_.notify_one();
} catch (...) {
  closure->mark_cancelled();
  throw;
}

void ClosureQueue::wait(const Deadline& deadline) {
  Lock lock(mu_);
  const bool is_in_time = wait_for(lock, deadline, [&] { return failure_ || is_throwing_ || is_idle(); });
  if (!is_in_time) throw_late("waiting for closures", queued_.size(), in_flight_);
  throw_failure_if_any(lock, deadline);
}

bool ClosureQueue::done(const Deadline& deadline) {
  Lock lock(mu_);
  throw_failure_if_any(lock, deadline);
  return is_idle();
}

Taken ClosureQueue::get(const Appetite& appetite, const Deadline& deadline) {
  Lock lock(mu_);
  const auto can_take = [&] { return !queued_.empty() && staleness_.room() > 0; };
  offered_.wait_until(lock, deadline.time(), [&] { return is_stopped_ || can_take(); });
  Taken taken;
  if (is_stopped_ || !can_take()) return taken;
  const auto most = staleness_.share(appetite.closures);
  std::size_t bytes = 0;
  do {
    bytes += queued_.front()->bytes();
    taken.closures.push_back(std::move(queued_.front()));
    queued_.pop_front();
  } while (!queued_.empty() && taken.closures.size() < most && bytes < appetite.bytes && !taken.closures.back()->goes_alone() &&
           !queued_.front()->goes_alone());
  in_flight_ += taken.closures.size();
  taken.began = staleness_.begin(taken.closures.size());
  taken.cancelled = cancel_.get_token();
  changed_.notify_all();
  return taken;
}

void ClosureQueue::end_flight(Lock&, std::size_t count, std::uint64_t began) {
  if (count > in_flight_) throw Error(ErrorCode::kInternal, str(count, " closures ended, but ", in_flight_, " were in flight"));
  const bool was_full = staleness_.room() == 0;
  staleness_.end(began, count);
  in_flight_ -= count;
  changed_.notify_all();
  if (was_full) offered_.notify_all();
}

void ClosureQueue::mark_finished(std::size_t count, std::uint64_t began) {
  Lock lock(mu_);
  end_flight(lock, count, began);
}

void ClosureQueue::mark_failed(std::exception_ptr failure, std::uint64_t began) {
  Lock lock(mu_);
  end_flight(lock, 1, began);
  if (!failure_) failure_ = std::move(failure);
}

void ClosureQueue::note_failure(const std::exception_ptr& failure) {
  const Lock lock(mu_);
  if (!failure_) failure_ = failure;
}

void ClosureQueue::put_back(const std::vector<ClosurePtr>& closures, std::uint64_t began) {
  Lock lock(mu_);
  if (is_stopped_ || failure_) {
    // They are in flight until they are cancelled: whoever waits for the end must find them so.
    const bool is_over = is_stopped_;
    lock.unlock();
    for (const auto& closure : closures) is_over ? closure->mark_aborted() : closure->mark_cancelled();
    lock.lock();
  } else {
    queued_.insert(queued_.begin(), closures.begin(), closures.end());
    offered_.notify_all();
  }
  end_flight(lock, closures.size(), began);
}

void ClosureQueue::abandon(const std::exception_ptr& failure) {
  Lock lock(mu_);
  if (!failure_) failure_ = failure;
  const auto dropped = std::exchange(queued_, {});
  changed_.notify_all();
  lock.unlock();
  for (const auto& closure : dropped) closure->mark_abandoned(failure);
}

void ClosureQueue::stop() {
  Lock lock(mu_);
  is_stopped_ = true;
  const auto dropped = std::exchange(queued_, {});
  auto cancel = cancel_;
  offered_.notify_all();
  changed_.notify_all();
  lock.unlock();
  for (const auto& closure : dropped) closure->mark_aborted();
  cancel.request_stop();
}

ClosureQueue::Counts ClosureQueue::counts() const {
  const Lock lock(mu_);
  return {queued_.size(), in_flight_};
}

}  // namespace lockstep::ps
