#pragma once

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

// Makes up to `capacity` items ahead on a thread of its own.
//
// Note [prefetch]
// 1. The thread calls `produce` until it says false or throws; nobody else calls it. It waits while the queue is full.
// 2. take() hands items out in order. What `produce` threw is thrown after the items made before it, and by every later
//    call.
// 3. The destructor asks the thread to stop, which wakes it if it waits, and joins it: it returns after the `produce`
//    call under way. A slow producer is reported on the log, never given up: it may be right to be slow.
template <typename Item>
class Prefetcher {
 public:
  Prefetcher(std::string name, std::size_t capacity, std::function<bool(Item&)> produce)
      : name_(std::move(name)), capacity_(capacity), produce_(std::move(produce)) {
    thread_ = start_data_thread(name_, [this](std::stop_token stop) { fill(stop); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Blocks until the next item is there. False at the end. One caller at a time.
  bool take(Item& out) {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mu_);
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
    lock.unlock();
    changed_.notify_all();
    return true;
  }

 private:
  static constexpr std::chrono::seconds kReportEvery{10};

  void fill(const std::stop_token& stop) noexcept {
    try {
      while (!stop.stop_requested()) {
        Item item{};
        if (!produce_(item)) break;
        std::unique_lock lock(mu_);
        ready_.push_back(std::move(item));
        changed_.notify_all();
        if (!wait_for_room(lock, stop)) break;
      }
    } catch (...) {
      const std::lock_guard lock(mu_);
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mu_);
    is_done_ = true;
    changed_.notify_all();
  }

  // False when told to stop.
  bool wait_for_room(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    const auto has_room = [&] { return ready_.size() < capacity_; };
    while (!stop.stop_requested())
      if (changed_.wait_for(lock, stop, kReportEvery, has_room)) return true;
    return false;
  }

  // Const after construction.
  const std::string name_;
  const std::size_t capacity_;

  // Used only on the thread.
  const std::function<bool(Item&)> produce_;

  // Guarded by mu_.
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::deque<Item> ready_;
  std::exception_ptr error_;
  bool is_done_ = false;

  std::jthread thread_;  // last member: joined first
};

// Elements made ahead, up to `count`; 0: not ahead at all. Throws kInvalidArgument below 0.
NodePtr make_prefetch(NodePtr input, std::int64_t count);

}  // namespace lockstep::data::internal
