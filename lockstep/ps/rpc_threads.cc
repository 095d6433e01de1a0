#include "lockstep/ps/rpc_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep::ps::internal {
namespace {

constexpr std::size_t kMostWaiting = 4096;

}  // namespace

RpcThreads::RpcThreads(int most_threads, std::size_t most_waiting_bytes)
    : most_threads_(static_cast<std::size_t>(std::max(1, most_threads))), most_waiting_bytes_(most_waiting_bytes) {}

RpcThreads::~RpcThreads() { close(); }

bool RpcThreads::add(Work work, std::size_t bytes) {
  std::unique_lock lock(mu_);
  if (is_closed_ || waiting_.size() >= kMostWaiting || (!waiting_.empty() && waiting_bytes_ + bytes > most_waiting_bytes_))
    return false;
  if (idle_ <= waiting_.size() && threads_.size() < most_threads_ && !start_one() && threads_.empty()) return false;
  waiting_.push_back({std::move(work), bytes});
  waiting_bytes_ += bytes;
  lock.unlock();  // who wakes up would wait for it
  changed_.notify_one();
  return true;
}

// A system that has no thread left is no reason to end: there may be others here.
bool RpcThreads::start_one() {
  try {
    threads_.push_back(start_thread("lockstep:rpc", [this](const std::stop_token& stop) { serve(stop); }));
    return true;
  } catch (const std::system_error& error) {
    log_warning(str("a server cannot start another thread: ", error.what(), "; it goes on with ", threads_.size()));
    return false;
  }
}

void RpcThreads::serve(const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  while (true) {
    ++idle_;
    const bool has_work = changed_.wait(lock, stop, [&] { return !waiting_.empty(); });
    --idle_;
    if (!has_work || is_closed_) return;
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= next.bytes;
    lock.unlock();
    next.work(Turn::kHasCome);
    next.work = nullptr;
    lock.lock();
  }
}

void RpcThreads::close() {
  std::deque<Waiting> left;
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mu_);
    is_closed_ = true;
    left.swap(waiting_);
    threads.swap(threads_);
  }
  for (const auto& waiting : left) waiting.work(Turn::kNeverComes);
  for (auto& thread : threads) thread.request_stop();
}

}  // namespace lockstep::ps::internal
