#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/gate.h"

namespace lockstep::data::internal {

// A piece of work that a thread of the pool does, or whoever needs it done first.
//
// Note [who works]
// 1. Whoever needs a task's result does it itself if nobody has begun it. So nothing ever waits for work that no thread is
//    free for: a function of a pipeline may iterate another pipeline, and a forked child, which has no pool, goes on.
// 2. A task is dropped by whoever made it when its result is not needed any more; one that is under way is waited for.
class Task {
 public:
  // `work` must not throw, and is destroyed with the task.
  explicit Task(std::function<void()> work) : work_(std::move(work)) {}

  // The work has been done when this returns. `waits_for`: begins the line on the log when that takes long.
  void finish(const char* waits_for);
  // The work is not under way when this returns, and will not be.
  void drop(const char* waits_for);
  bool is_done() const noexcept { return state_.load(std::memory_order_acquire) == State::kDone; }

  // For the pool.
  void run_if_free();

 private:
  enum class State { kFree, kTaken, kDone };

  bool take();
  void wait(const char* waits_for);

  const std::function<void()> work_;
  std::atomic<State> state_{State::kFree};
  Gate done_;
};

// The threads of a process that work for its input pipelines: one for every core it may use. They begin with the first task.
class Pool {
 public:
  static Pool& instance();

  // What kAutotune is: a thread for every core that no replica computes on.
  int good_parallelism() const noexcept { return std::max(1, size_ - replicas_.load(std::memory_order_relaxed)); }
  // So many replicas of this process compute on its cores.
  void leave_cores_for(int replicas) noexcept { replicas_.store(replicas, std::memory_order_relaxed); }
  // Some time, unless somebody else does it first.
  void submit(std::shared_ptr<Task> task);

 private:
  Pool();
  void work(const std::stop_token& stop);

  const int size_;  // cores
  std::atomic<int> replicas_{0};

  // Guarded by mu_.
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::data::internal
