#include "lockstep/train/preemption.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/exit_codes.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/worker_group.h"

namespace lockstep::internal {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<std::int64_t> g_told_at{0};                         // nanoseconds of the steady clock; 0: not told
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // a signal handler may write it

// What Clock::now() reads, by a call that a signal handler may make.
std::int64_t now() noexcept {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNanoseconds + time.tv_nsec;
}

// Who says it twice means it, whatever the training does.
void note(int signal) {
  const int kept = errno;
  const auto time = now();
  std::int64_t before = 0;
  if (!g_told_at.compare_exchange_strong(before, time) && time - before > std::chrono::nanoseconds(kSameNotice).count()) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = kept;
}

class Listener {
 public:
  Listener() {
    g_told_at = 0;
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, &before_);
  }
  ~Listener() { sigaction(SIGTERM, &before_, nullptr); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

std::shared_ptr<void> listen_for_preemption() {
  static std::mutex mu;
  static std::weak_ptr<Listener> shared;  // guarded by mu
  const std::lock_guard lock(mu);
  auto listener = shared.lock();
  if (listener == nullptr) shared = listener = std::make_shared<Listener>();
  return listener;
}

bool is_preempted() noexcept { return g_told_at.load(std::memory_order_relaxed) != 0; }

std::optional<Clock::time_point> preempted_at() noexcept {
  const auto time = g_told_at.load(std::memory_order_relaxed);
  if (time == 0) return std::nullopt;
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(time)));
}

// A worker that has gone is a lost one to those that still wait for it. Nobody passes the barrier before all have come to it,
// and all that come have their training on the disk: what it throws then is of no account.
void leave_together(WorkerGroup* workers, const std::function<void()>& exit_fn) {
  try {
    if (workers != nullptr) workers->barrier("the end of a training that was told to go");
  } catch (const Error& error) {
    log_info(str("the others have gone: ", error.message()));
  }
  if (exit_fn) return exit_fn();
  std::fflush(nullptr);
  std::_Exit(kPreemptedExitCode);  // no destructors: other threads of the program still run
}

}  // namespace lockstep::internal
