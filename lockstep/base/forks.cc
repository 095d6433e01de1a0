#include "lockstep/base/forks.h"

#include <pthread.h>

#include <atomic>

namespace lockstep {
namespace {

std::atomic<std::uint64_t> g_forks{0};

}  // namespace

std::uint64_t forks() noexcept {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace lockstep
