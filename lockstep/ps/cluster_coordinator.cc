#include "lockstep/ps/cluster_coordinator.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/task_report.h"
#include "lockstep/ps/worker_lane.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kFarewell(3);

std::vector<std::string> names_of(const std::vector<WorkerLink>& workers) {
  require(!workers.empty(), "a coordinator needs one worker at least");
  std::vector<std::string> names;
  for (const auto& worker : workers) names.push_back(worker.name);
  if (std::set(names.begin(), names.end()).size() < names.size())
    throw Error(ErrorCode::kInvalidArgument, str("two workers of a coordinator have one name: ", join(", ", names)));
  return names;
}

}  // namespace

struct ClusterCoordinator::State {
  State(const std::vector<WorkerLink>& workers, const CoordinatorOptions& options) : shared(options, names_of(workers)) {
    ps::FunctionRegistry::global().require_sound();
    for (const auto& worker : workers)
      lanes.push_back(std::make_unique<ps::WorkerLane>(worker, static_cast<int>(lanes.size()), shared));
    watch = start_thread("lockstep:signs", [this](const std::stop_token& stop) { look_after_workers(stop); });
  }

  ~State() {
    watch.request_stop();
    for (const auto& lane : lanes) lane->request_stop();
    shared.queue.stop();
    const auto deadline = Deadline::after(kFarewell);
    for (const auto& lane : lanes) lane->finish(deadline);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void look_after_workers(const std::stop_token& stop) {
    std::mutex mu;
    std::condition_variable_any stopped;
    std::unique_lock lock(mu);
    while (!stop.stop_requested()) {
      stopped.wait_for(lock, stop,
                       std::min<std::chrono::nanoseconds>(shared.options.silence_timeout / 4, std::chrono::seconds(1)),
                       [] { return false; });
      for (const auto& lane : lanes) lane->ask_for_sign();
      for (const auto& lane : lanes) lane->hear_sign();
    }
  }

  // Own synchronisation.
  ps::LaneShared shared;

  // Const after construction.
  std::vector<std::unique_ptr<ps::WorkerLane>> lanes;

  std::jthread watch;  // last: joined first
};

ClusterCoordinator::ClusterCoordinator(std::vector<WorkerLink> workers, const CoordinatorOptions& options)
    : state_(std::make_shared<State>(workers, options)) {}

std::size_t ClusterCoordinator::num_workers() const noexcept { return state_->lanes.size(); }

ps::CoordinatorStatistics ClusterCoordinator::statistics() const {
  const auto& shared = state_->shared;
  const auto counts = shared.queue.counts();
  return {counts.queued, counts.in_flight, num_workers(), shared.attendance.who_is_missing()};
}

void ClusterCoordinator::require_max_staleness(std::optional<std::size_t> wanted) const {
  const auto& there = state_->shared.options.max_staleness;
  if (!wanted || wanted == there) return;
  throw Error(ErrorCode::kFailedPrecondition,
              str("max_staleness of ", *wanted, ": the strategy has a coordinator already, whose is ",
                  there ? str(*there) : std::string("not bounded"), "; make this one before hosted() and before any other"));
}

const std::shared_ptr<ps::ResourceTable>& ClusterCoordinator::resources() const noexcept { return state_->shared.resources; }

void ClusterCoordinator::put(ps::Call call, std::shared_ptr<ps::ResultSlot> slot) {
  auto& shared = state_->shared;
  shared.queue.put(std::make_shared<ps::ScheduledClosure>(std::move(call), std::move(slot)),
                   Deadline::after(shared.options.schedule_timeout));
}

void ClusterCoordinator::join() { join(Deadline::after(std::chrono::hours(24 * 365))); }

void ClusterCoordinator::join(const Deadline& deadline) try {
  state_->shared.queue.wait(deadline);
} catch (const Error& error) {
  const auto missing = state_->shared.attendance.missing();
  if (error.code() != ErrorCode::kDeadlineExceeded || !deadline.has_passed() || missing.empty()) throw;
  throw Error(error.code(), str(error.message(), "; ", missing));
}

bool ClusterCoordinator::done() { return state_->shared.queue.done(Deadline::after(state_->shared.options.closure_timeout)); }

}  // namespace lockstep
