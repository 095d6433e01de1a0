#include "lockstep/data/pool.h"

#include <chrono>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep::data::internal {
namespace {

constexpr std::chrono::seconds kReportEvery{10};

}  // namespace

bool Task::take() {
  auto expected = State::kFree;
  return state_.compare_exchange_strong(expected, State::kTaken, std::memory_order_acq_rel);
}

void Task::run_if_free() {
  if (!take()) return;
  work_();
  state_.store(State::kDone, std::memory_order_release);
  done_.advance();
}

void Task::wait(const char* waits_for) {
  const auto since = std::chrono::steady_clock::now();
  while (!is_done() && !done_.wait(0, Deadline::after(kReportEvery))) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - since);
    log_warning(
        str(waits_for, ": a function of the input pipeline has been running for ", seconds.count(), " s; still waiting"));
  }
}

void Task::finish(const char* waits_for) {
  run_if_free();
  wait(waits_for);
}

void Task::drop(const char* waits_for) {
  if (take()) state_.store(State::kDone, std::memory_order_release);
  else wait(waits_for);
}

Pool& Pool::instance() {
  // Never destroyed: pipelines may be, after everything that is.
  static auto& pool = *new Pool;
  return pool;
}

Pool::Pool() : size_(available_cores()) {}

void Pool::submit(std::shared_ptr<Task> task) {
  {
    const std::lock_guard lock(mu_);
    tasks_.push_back(std::move(task));
    while (threads_.size() < static_cast<std::size_t>(size_))
      threads_.push_back(start_thread("lockstep:data", [this](const std::stop_token& stop) { work(stop); }));
  }
  changed_.notify_one();
}

void Pool::work(const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  while (changed_.wait(lock, stop, [&] { return !tasks_.empty(); })) {
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task->run_if_free();
    task.reset();
    lock.lock();
  }
}

}  // namespace lockstep::data::internal
