#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/data/node.h"

namespace lockstep::data::internal {

// Starts a thread that runs `body` with the caller's LibTorch settings (grad mode, autocast, ...).
std::jthread start_data_thread(const std::string& name, std::function<void(std::stop_token)> body);

// Says on the log, at most every few seconds, that `name` has been waiting for its input since `since`.
void report_slow_input(const std::string& name, std::chrono::steady_clock::time_point since);

// Makes up to `capacity` items ahead on a thread of its own; kAutotune: as many as turn out to be needed. These are one, or
// a few small ones (as `bytes_of` says), and twice as many each time that somebody has to wait, up to kMostAhead.
//
// Note [prefetch]
// 1. The thread calls `produce` until it says false or throws; nobody else calls it. It waits while the queue is full, with
//    kAutotune until half of it is taken: a thread that wakes for every batch takes a core from a replica in every step.
// 2. take() hands items out in order. What `produce` threw is thrown after the items made before it, and by every later
//    call.
// 3. save() waits for the `produce` call under way and keeps the next one from beginning, so that what lies ready and where
//    the producer is belong together.
// 4. The destructor asks the thread to stop, which wakes it if it waits, and joins it: it returns after the `produce`
//    call under way. A slow producer is reported on the log, never given up: it may be right to be slow.
template <typename Item>
class Prefetcher {
 public:
  Prefetcher(std::string name, std::int64_t capacity, std::function<bool(Item&)> produce,
             std::function<std::size_t(const Item&)> bytes_of = nullptr)
      : name_(std::move(name)),
        grows_(capacity == kAutotune),
        produce_(std::move(produce)),
        bytes_of_(std::move(bytes_of)),
        capacity_(grows_ ? 1 : static_cast<std::size_t>(capacity)) {
    thread_ = start_data_thread(name_, [this](std::stop_token stop) { fill(stop); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // How many items lie ready.
  std::size_t size() const {
    const std::lock_guard lock(mu_);
    return ready_.size();
  }

  // Calls `put` with every item that lies ready, then `rest`, while nothing is produced. Throws what `produce` threw: where the
  // producer is cannot be said then.
  template <typename Put, typename Rest>
  void save(Put put, Rest rest) {
    const std::lock_guard paused(producing_);
    {
      const std::lock_guard lock(mu_);
      if (error_) std::rethrow_exception(error_);
      for (const auto& item : ready_) put(item);
    }
    rest();
  }

  // Blocks until the next item is there. False at the end. One caller at a time.
  bool take(Item& out) {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mu_);
    if (grows_ && ready_.empty() && !is_done_) capacity_ = std::min(capacity_ * 2, kMostAhead);
    while (!changed_.wait_for(lock, kReportEvery, [&] { return !ready_.empty() || is_done_; })) {
      lock.unlock();
      report_slow_input(name_, start);
      lock.lock();
    }
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return false;
    }
    out = std::move(ready_.front());
    ready_.pop_front();
    const bool must_refill = ready_.size() <= low();
    lock.unlock();
    if (must_refill) changed_.notify_all();
    return true;
  }

 private:
  static constexpr std::chrono::seconds kReportEvery{10};
  static constexpr std::size_t kMostAhead = 16;
  static constexpr std::size_t kSmallAhead = 8;
  static constexpr std::size_t kSmallBytes = 4 << 20;  // of so many small ones together

  void fill(const std::stop_token& stop) noexcept {
    while (!stop.stop_requested()) {
      if (!produce_one()) break;
      std::unique_lock lock(mu_);
      if (!wait_for_room(lock, stop)) break;
    }
    const std::lock_guard lock(mu_);
    is_done_ = true;
    changed_.notify_all();
  }

  // False at the end, and after an error, which is kept before save() can look.
  bool produce_one() {
    const std::lock_guard producing(producing_);
    Item item{};
    try {
      if (!produce_(item)) return false;
    } catch (...) {
      const std::lock_guard lock(mu_);
      error_ = std::current_exception();
      return false;
    }
    const std::lock_guard lock(mu_);
    if (grows_ && bytes_of_ && !has_looked_) {
      capacity_ = std::max(capacity_, std::min(kSmallAhead, kSmallBytes / std::max<std::size_t>(1, bytes_of_(item))));
      has_looked_ = true;
    }
    ready_.push_back(std::move(item));
    changed_.notify_all();
    return true;
  }

  // So few are left when the thread goes on.
  std::size_t low() const { return grows_ ? capacity_ / 2 : capacity_ - 1; }

  // False when told to stop.
  bool wait_for_room(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    if (ready_.size() < capacity_) return true;
    const auto has_room = [&] { return ready_.size() <= low(); };
    while (!stop.stop_requested())
      if (changed_.wait_for(lock, stop, kReportEvery, has_room)) return true;
    return false;
  }

  // Const after construction.
  const std::string name_;
  const bool grows_;

  // Used only on the thread.
  const std::function<bool(Item&)> produce_;
  const std::function<std::size_t(const Item&)> bytes_of_;  // may be null
  bool has_looked_ = false;                                 // at the size of the first one

  // Held while an item is made; before mu_.
  std::mutex producing_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable_any changed_;
  std::size_t capacity_;
  std::deque<Item> ready_;
  std::exception_ptr error_;
  bool is_done_ = false;

  std::jthread thread_;  // last member: joined first
};

}  // namespace lockstep::data::internal
