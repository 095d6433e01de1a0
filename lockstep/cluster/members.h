#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/cluster/cluster_spec.h"

namespace lockstep {

// What a task says about itself when it registers. `spec` and `build` must be the coordinator's own.
struct Introduction {
  Task task;
  std::string secret;
  std::string spec;
  std::string build;
  std::string host;
  std::int64_t pid = 0;
};

// What a task is doing, as it last said.
struct Activity {
  std::int64_t step = -1;
  std::string doing = "";   // "all_reduce #12 of 4 tensors", "user code"
  std::uint64_t calls = 0;  // collectives that it has begun
};

// One task as the coordinator sees it.
struct Member {
  Introduction introduction;
  std::uint64_t id = 0;  // of this life of the task: a restarted one has another
  Activity activity;
  std::chrono::steady_clock::time_point last_heard;
  bool has_left = false;  // said good-bye
};

// Why the cluster cannot go on: the first task that failed, and how.
struct Failure {
  Task task;
  ErrorCode code = ErrorCode::kUnavailable;
  std::string message;
};

// The coordinator's book: who has registered, what they put into the key-value store, who waits where, who failed.
// All waits end at their deadline, or with the error of the first failure. Thread-safe.
class Members {
 public:
  // `expected` are the tasks that take part. A secret that is empty is one too.
  Members(std::vector<Task> expected, std::string secret, std::string spec, std::string build);

  // Enters a task and returns the id of its life. Throws kFailedPrecondition that says what does not fit (secret, cluster
  // spec, build, a task that is not expected) or who has the place already, kUnavailable when the job is ending: the task
  // may try again.
  std::uint64_t join(const Introduction& introduction);

  // A clean good-bye. Barriers do not wait for it any more: they fail.
  void leave(std::uint64_t id);

  // The connection to a member broke: it is dead, unless it has left. The cluster fails, and its place is free.
  void lose(std::uint64_t id, const std::string& how);

  // A member reports an error of its own. The cluster fails with it, if it has not failed before.
  void fail(std::uint64_t id, ErrorCode code, const std::string& message);

  void note(std::uint64_t id, const Activity& activity);

  // These throw kFailedPrecondition for an id that is no member's, or that of one that has left.
  void put(std::uint64_t id, const std::string& key, std::string value);
  // Waits until the key is there. Throws kDeadlineExceeded naming it.
  std::string get(std::uint64_t id, const std::string& key, const Deadline& deadline);

  // Returns when all expected tasks are at the barrier of this name. Throws kDeadlineExceeded naming who is missing and
  // what they do, kFailedPrecondition when a task is at it twice.
  void barrier(const std::string& name, std::uint64_t id, const Deadline& deadline);

  // The first failure; waits for one until the deadline. Nothing: there is none.
  std::optional<Failure> failure(const Deadline& deadline);
  std::optional<Failure> failure() { return failure(Deadline::after(std::chrono::nanoseconds(0))); }

  // Waits until everybody who has registered has left, or the cluster has failed.
  void wait_for_goodbyes(const Deadline& deadline);

  // Ends all waits with kCancelled: the coordinator goes.
  void close();

  // All that have ever registered, in the order of the expected tasks.
  std::vector<Member> all() const;

 private:
  struct Barrier {
    std::set<Task> arrived;
    std::uint64_t round = 0;  // times it has opened
  };

  // With mu_ held.
  void require_beginning(std::unique_lock<std::mutex>& lock, const Introduction& introduction);
  Member* find(std::uint64_t id);
  const Member& require(std::uint64_t id);
  void fail_locked(const Task& task, ErrorCode code, const std::string& message);
  bool is_over() const { return failure_.has_value() || is_closed_; }
  void throw_if_over() const;
  std::string who_is_missing(const std::set<Task>& arrived) const;

  // Const after construction.
  const std::vector<Task> expected_;
  const std::string secret_;
  const std::string spec_;
  const std::string build_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::map<Task, Member> members_;
  std::map<std::string, std::string> values_;
  std::map<std::string, Barrier> barriers_;
  std::optional<Failure> failure_;
  bool is_closed_ = false;
};

}  // namespace lockstep
