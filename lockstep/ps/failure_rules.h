#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/reminder.h"
#include "lockstep/ps/closure_messages.h"

namespace lockstep::ps {

// Which errors of closures are not theirs, so that they are run again, and how often. Thread-safe.
class FailureRules {
 public:
  // Throws kInvalidArgument for variables that are no numbers.
  FailureRules(const Environment& environment, int num_workers);

  // What a closure failed with on a worker; null: run it again. `which`: the closure's name in texts, and where it was.
  std::exception_ptr judge(const closures::Outcome& failed, const std::string& which);
  // Whether a worker that did not answer in time is asked again.
  bool forgives_timeout();
  // How long the thread of that worker waits before its first closure.
  std::chrono::nanoseconds start_delay(int worker) const;

 private:
  // Const after construction.
  const std::int64_t ps_threshold_;
  const std::int64_t timeout_threshold_;
  const std::int64_t delay_;
  const std::int64_t most_delay_;

  // Guarded by mu_.
  std::mutex mu_;
  std::map<std::string, std::int64_t> ps_failures_;
  std::int64_t timeouts_ = 0;
};

// Which workers are there. Thread-safe.
class Attendance {
 public:
  explicit Attendance(const std::vector<std::string>& workers)
      : missing_(workers.begin(), workers.end()), all_(workers.size()) {}

  void arrive(const std::string& worker);
  void leave(const std::string& worker, const std::string& why);
  // For how long nobody has been there.
  std::chrono::nanoseconds deserted_for() const;
  // Says once who is missing, when nobody has come for a while.
  void remind();
  // "waiting for /job:worker/task:0, ..."; empty: all are there.
  std::string missing() const;
  // By name, in order.
  std::vector<std::string> who_is_missing() const;

 private:
  std::string missing_text() const;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::set<std::string> missing_;
  const std::size_t all_;
  std::chrono::steady_clock::time_point deserted_since_ = std::chrono::steady_clock::now();
  Reminder reminder_{std::chrono::seconds(10)};
};

}  // namespace lockstep::ps
