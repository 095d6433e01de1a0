#pragma once

#include <pthread.h>
#include <sched.h>

namespace lockstep {

// While it lives, threads that this one starts do not push others off their core when they wake (SCHED_BATCH); they get
// their share all the same.
//
// Gloo's thread tries the lock of a connection and looks again at once when somebody holds it. When it wakes on the core of
// the thread that holds the lock, in the middle of a write, it spins there until the next tick of the scheduler: 4 ms
// instead of 0.1 for a small message.
class ModestThreads {
 public:
  ModestThreads() noexcept {
    is_known_ = pthread_getschedparam(pthread_self(), &policy_, &parameters_) == 0 && policy_ == SCHED_OTHER;
    if (is_known_) pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters_);
  }
  ~ModestThreads() {
    if (is_known_) pthread_setschedparam(pthread_self(), policy_, &parameters_);
  }
  ModestThreads(const ModestThreads&) = delete;
  ModestThreads& operator=(const ModestThreads&) = delete;

 private:
  bool is_known_ = false;
  int policy_ = 0;
  sched_param parameters_ = {};
};

}  // namespace lockstep
