#include "lockstep/base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace lockstep {

std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body) {
  return std::jthread([name, body = std::move(body)](std::stop_token stop) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    body(std::move(stop));
  });
}

int available_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

}  // namespace lockstep
