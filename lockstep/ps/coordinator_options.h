#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/ps/closure_queue.h"
#include "lockstep/ps/rpc.h"

namespace lockstep {

// A worker that a coordinator can reach.
struct WorkerLink {
  std::string name = "";  // "/job:worker/task:0"
  std::shared_ptr<ps::RpcChannel> channel = nullptr;
};

struct CoordinatorOptions {
  // So many closures wait at most; then schedule() does, for `schedule_timeout`.
  std::size_t queue_size = ps::ClosureQueue::kCapacity;
  std::chrono::nanoseconds schedule_timeout = std::chrono::hours(24);
  // Absent: asynchronous. Otherwise no closure misses more than so many others' updates: closures are handed out only while the
  // one that has been with its worker longest cannot come to more than so many that end meanwhile. 0: one at a time. A worker
  // that is slow holds the others up, then; one that is lost does not.
  std::optional<std::size_t> max_staleness = std::nullopt;
  // A closure that runs for longer is kDeadlineExceeded.
  std::chrono::nanoseconds closure_timeout = std::chrono::hours(24);
  // When no worker at all has been there for so long, schedule(), join() and done() throw kUnavailable naming them.
  std::chrono::nanoseconds workers_timeout = std::chrono::hours(1);
  // A closure that workers had so many times when they were lost is kUnavailable: it may be what ends them. Losses within a
  // second count once.
  int most_losses = 4;
  // A worker that has closures and gives no sign of life for so long (it is stopped, or its machine hangs) is given up: they
  // run elsewhere. One that is only gone is noticed at once.
  std::chrono::nanoseconds silence_timeout = std::chrono::seconds(30);

  // TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES, the report of a parameter server's absence that is fatal (3);
  // TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS, the same of kDeadlineExceeded (number of workers / 10; 0: the first);
  // TF_COORDINATOR_SCHEDULE_START_DELAY, seconds that worker i waits i times at the start (0), and .._MAX, the most.
  Environment environment = {};
};

}  // namespace lockstep
