#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ps/closure_queue.h"
#include "lockstep/ps/coordinator_options.h"
#include "lockstep/ps/failure_rules.h"
#include "lockstep/ps/per_worker_values.h"
#include "lockstep/ps/remote_value.h"
#include "lockstep/ps/rpc.h"

namespace lockstep::ps {

// A call and where its result goes.
struct ScheduledClosure : Closure {
  ScheduledClosure(Call given, std::shared_ptr<ResultSlot> to) : call(std::move(given)), slot(std::move(to)) {}

  void mark_cancelled() noexcept override { slot->set_cancelled(); }
  void mark_aborted() noexcept override { slot->set_aborted(); }
  void mark_abandoned(const std::exception_ptr& why) noexcept override { slot->set_error(why); }
  std::size_t bytes() const noexcept override { return call.work.arguments.size() + call.work.payload_bytes; }

  // One that was there when a worker was lost may have been the reason.
  bool goes_alone() const noexcept override { return losses > 0; }

  const Call call;
  const std::shared_ptr<ResultSlot> slot;
  // Used by who has it now, the queue or a lane.
  int losses = 0;  // how often workers were lost that had it; when many are lost at once that is once
  std::chrono::steady_clock::time_point lost_at = {};  // when it was counted last
};

// What the lanes of a coordinator share. All of it is thread-safe.
struct LaneShared {
  LaneShared(const CoordinatorOptions& given, std::vector<std::string> workers);

  const CoordinatorOptions options;
  const std::uint64_t coordinator;  // its number
  ClosureQueue queue;
  const std::shared_ptr<ResourceTable> resources = std::make_shared<ResourceTable>();
  FailureRules rules;
  Attendance attendance;
};

// How many closures a worker is sent at once: as many as take about a millisecond, going by the last ones.
class BatchSize {
 public:
  std::size_t closures() const noexcept;
  void learn(std::size_t closures, std::chrono::nanoseconds took) noexcept;
  // A batch could not be sent as it was.
  void one_at_a_time() noexcept { of_one_ = kTarget; }

 private:
  static constexpr std::chrono::nanoseconds kTarget = std::chrono::milliseconds(1);
  std::chrono::nanoseconds of_one_ = kTarget;
};

// One worker, as the coordinator sees it: a thread takes closures from the queue, sends them there, and says how they ended.
// When the worker is lost its closures go back to the queue, and the thread waits until it is there again.
class WorkerLane {
 public:
  WorkerLane(WorkerLink worker, int index, LaneShared& shared);
  ~WorkerLane();
  WorkerLane(const WorkerLane&) = delete;
  WorkerLane& operator=(const WorkerLane&) = delete;

  const std::string& name() const noexcept { return worker_.name; }

  // Asks the worker for a sign of life when it has had closures for a while, and waits for it; one that does not answer is
  // given up. Both on one thread.
  void ask_for_sign();
  void hear_sign();
  // Takes no further closures. Those in flight may end until the deadline, and are given up then.
  void request_stop() noexcept { thread_.request_stop(); }
  void finish(const Deadline& deadline);

 private:
  void work(const std::stop_token& stop);
  void wait_to_start(const std::stop_token& stop);
  // Says hello. False: not now.
  bool connect();
  void run(const Taken& taken);
  std::unique_ptr<Incoming> send(const Taken& taken, const ResourceTable::Changes& changes);
  std::unique_ptr<Incoming> call(const char* method, const Outgoing& request, const Deadline& deadline,
                                 const std::stop_token& cancelled);
  void cancel_on_worker(std::uint64_t batch) noexcept;
  void give_up() noexcept;

  // The ways in which closures end.
  void settle(const Taken& taken, const ResourceTable::Changes& changes, Incoming& reply);
  void on_failed_call(const Taken& taken, const std::exception_ptr& error);
  void lose(const Taken& taken, const std::string& why);
  // Closures of a worker that is lost: to others, but for one that was there too often when that happened.
  void hand_on(const Taken& taken, const std::string& why);
  void fail(const Taken& taken, const std::exception_ptr& error);
  void fail_one(const ClosurePtr& closure, const std::exception_ptr& error, std::uint64_t began);

  // Const after construction.
  const WorkerLink worker_;
  const int index_;
  LaneShared& shared_;

  // Guarded by mu_.
  std::mutex mu_;
  std::condition_variable changed_;
  PendingCall call_;                                              // of the batch
  std::optional<std::chrono::steady_clock::time_point> in_call_;  // since when there is one
  std::optional<PendingCall> question_;                           // for a sign of life
  std::chrono::steady_clock::time_point asked_in_;                // which call
  std::vector<PendingCall> cancellations_;
  bool is_over_ = false;  // no further calls

  // Used only on the thread.
  bool is_connected_ = false;
  std::uint64_t incarnation_ = 0;
  std::uint64_t batch_ = 0;  // the number of the last
  std::set<std::uint64_t> there_;
  std::uint64_t version_ = 0;  // of the table, when `there_` was brought up to it
  BatchSize batch_size_;

  std::jthread thread_;  // last: joined first
};

}  // namespace lockstep::ps
