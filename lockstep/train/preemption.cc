#include "lockstep/train/preemption.h"

#include <atomic>
#include <csignal>
#include <mutex>

namespace lockstep::internal {
namespace {

std::atomic<bool> g_is_told{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may write it

// Who says it twice means it, whatever the training does.
void note(int signal) {
  if (!g_is_told.exchange(true)) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Listener {
 public:
  Listener() {
    g_is_told = false;
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

bool is_preempted() noexcept { return g_is_told.load(std::memory_order_relaxed); }

}  // namespace lockstep::internal
