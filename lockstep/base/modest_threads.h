#pragma once

#include <pthread.h>
#include <sched.h>

namespace lockstep {

// While it lives, threads that this one starts do not push others off their core when they wake (SCHED_BATCH); they get
// their share all the same. For threads that work ahead, or that answer: what they would interrupt is waited for by all.
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
