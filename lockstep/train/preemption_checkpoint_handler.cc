#include "lockstep/train/preemption_checkpoint_handler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/first_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/checkpoint/together.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/train/preemption.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPart = "total_run_calls";

// How many calls were made, as a part of a checkpoint. The checkpoint owns it, and may outlive the handler.
class RunCalls : public Trackable {
 public:
  CheckpointPart save() override { return {{}, {{"value", str(count)}}}; }
  void restore(const CheckpointPart& part) override { count = *whole_number<std::int64_t>(part.value("value")); }
  std::vector<std::string> problems(const CheckpointPart& part) const override {
    const auto found = part.values.find("value");
    if (found != part.values.end() && whole_number<std::int64_t>(found->second)) return {};
    return {"value: is not there, or no number of calls"};
  }

  std::int64_t count = 0;
};

// Asks a function every second, until it says yes.
class Watcher {
 public:
  explicit Watcher(std::function<bool()> is_told) {
    if (!is_told) return;
    thread_ =
        start_thread("lockstep:notice", [this, ask = std::move(is_told)](const std::stop_token& stop) { watch(ask, stop); });
  }

  std::optional<Clock::time_point> told_at() const {
    const auto time = told_at_.load();
    return time == Clock::time_point() ? std::nullopt : std::optional(time);
  }

 private:
  void watch(const std::function<bool()>& ask, const std::stop_token& stop) {
    constexpr std::chrono::seconds kEvery(1);
    std::mutex mu;  // nobody else's: the wait ends with the time, or when it is to stop
    std::condition_variable_any never;
    for (bool has_warned = false; !stop.stop_requested();) {
      try {
        if (ask()) return told_at_.store(Clock::now());
      } catch (...) {
        if (!std::exchange(has_warned, true))
          log_warning(
              str("PreemptionCheckpointHandler: the watcher threw, and is asked again: ", describe(std::current_exception())));
      }
      std::unique_lock lock(mu);
      never.wait_for(lock, stop, kEvery, [] { return false; });
    }
  }

  std::atomic<Clock::time_point> told_at_{Clock::time_point()};
  std::jthread thread_;  // last member: joined first
};

CheckpointManagerOptions own_options() { return {.max_to_keep = 2, .async = false}; }

std::optional<Clock::time_point> earlier(std::optional<Clock::time_point> a, std::optional<Clock::time_point> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

// Note [agreeing on the last call]
// 1. Before each call the workers tell each other, in one message, how far they are: nothing (kGo), told to go (kTold), or out
//    of time (kDue). The furthest is what all do, so all do it before the same call.
// 2. Without a grace period who is told is out of time. With one, kTold is: all save, once, and go on; each then knows since
//    when (its own notice, or this moment), and says kDue when its time has come.
// 3. kDue: all save, meet once more, and end.
struct PreemptionCheckpointHandler::State {
  enum class Word : char { kGo = '0', kTold = '1', kDue = '2' };

  State(std::unique_ptr<CheckpointManager> owned, CheckpointManager* given, TerminationConfig with)
      : config(std::move(with)),
        own_manager(std::move(owned)),
        manager(given == nullptr ? *own_manager : *given),
        checkpoint(manager.checkpoint()),
        notice(internal::listen_for_preemption()),
        watcher(config.watcher) {}

  WorkerGroup* workers() const {
    const auto replicas = checkpoint.replicas();
    return replicas == nullptr ? nullptr : replicas->workers();
  }

  void restore() {
    require(config.grace_period.count() >= 0, "PreemptionCheckpointHandler: grace_period must not be negative");
    checkpoint.track(kPart, calls);
    const auto restored = manager.restore_latest();
    if (restored && internal::is_first(workers()))
      log_info(str("PreemptionCheckpointHandler: goes on after ", calls->count, " calls, from ", restored->path));
  }

  std::optional<Clock::time_point> time_of_notice() const {
    return earlier(heard_at, earlier(internal::preempted_at(), watcher.told_at()));
  }

  Word mine() const {
    constexpr int kCallsLeft = 6;
    const auto told = time_of_notice();
    if (!told) return Word::kGo;
    const auto average = timed_calls == 0 ? Clock::duration(0) : time_of_calls / timed_calls;
    return Clock::now() >= *told + config.grace_period - kCallsLeft * average - time_of_save ? Word::kDue : Word::kTold;
  }

  // What all do.
  Word agree() const {
    auto furthest = mine();
    if (workers() != nullptr)
      for (const auto& one :
           workers()->exchange("run() of PreemptionCheckpointHandler", std::string(1, static_cast<char>(furthest))))
        if (!one.empty()) furthest = std::max(furthest, static_cast<Word>(one[0]));
    return furthest;
  }

  void save() {
    const auto begin = Clock::now();
    if (config.save) {
      internal::together(workers(), "the save function of PreemptionCheckpointHandler", [&] {
        config.save();
        return std::string();
      });
    } else {
      manager.save(calls->count);
      manager.wait();  // on all workers, when it is on the disk
    }
    time_of_save = Clock::now() - begin;
  }

  void save_and_go_on() {
    if (heard_at) return;
    heard_at = time_of_notice().value_or(Clock::now());
    save();
    say(str("goes on for ", std::chrono::duration<double>(config.grace_period).count(), " s at most"));
  }

  void leave() {
    save();
    say("ends");
    internal::leave_together(workers(), config.exit);
    throw Error(ErrorCode::kCancelled, str("PreemptionCheckpointHandler: told to go; ", where()));
  }

  std::string where() const {
    return str(config.save ? str("what was to be saved was saved") : str("training is kept in ", manager.directory()),
               ", after ", calls->count, " calls of run()");
  }
  void say(const std::string& what) const {
    if (internal::is_first(workers())) log_warning(str("PreemptionCheckpointHandler: told to go; ", where(), "; ", what));
  }

  // Const after construction.
  const TerminationConfig config;
  const std::unique_ptr<CheckpointManager> own_manager;
  CheckpointManager& manager;
  Checkpoint checkpoint;
  const std::shared_ptr<RunCalls> calls = std::make_shared<RunCalls>();
  const std::shared_ptr<void> notice;  // listens for SIGTERM

  // Used only on the thread that calls run().
  Clock::time_point call_began;
  std::uint64_t shared_failures = 0;  // before it
  Clock::duration time_of_calls{0};
  std::int64_t timed_calls = 0;
  Clock::duration time_of_save{0};
  std::optional<Clock::time_point> heard_at;  // the first of the two saves of a grace period was made

  Watcher watcher;  // last: its thread ends first
};

PreemptionCheckpointHandler::PreemptionCheckpointHandler(CheckpointManager& manager, TerminationConfig config)
    : state_(std::make_unique<State>(nullptr, &manager, std::move(config))) {
  state_->restore();
}

PreemptionCheckpointHandler::PreemptionCheckpointHandler(Checkpoint checkpoint, const std::string& directory,
                                                         TerminationConfig config) {
  require(!directory.empty(), "PreemptionCheckpointHandler: a Checkpoint needs a directory, whose name is empty");
  state_ = std::make_unique<State>(std::make_unique<CheckpointManager>(std::move(checkpoint), directory, own_options()),
                                   nullptr, std::move(config));
  state_->restore();
}

PreemptionCheckpointHandler::~PreemptionCheckpointHandler() = default;

std::int64_t PreemptionCheckpointHandler::total_run_calls() const noexcept { return state_->calls->count; }

void PreemptionCheckpointHandler::begin_call() {
  const auto mode = internal::current_mode();
  if (mode.context != nullptr && mode.replicas == state_->checkpoint.replicas().get())
    throw Error(
        ErrorCode::kFailedPrecondition,
        "PreemptionCheckpointHandler::run inside the strategy's run(); call strategy.run() in the function that it is given");
  switch (state_->agree()) {
    case State::Word::kGo: break;
    case State::Word::kTold: state_->save_and_go_on(); break;
    case State::Word::kDue: state_->leave(); break;
  }
  state_->shared_failures = state_->workers() == nullptr ? 0 : state_->workers()->shared_failures();
  state_->call_began = Clock::now();
}

void PreemptionCheckpointHandler::end_call() noexcept {
  state_->time_of_calls += Clock::now() - state_->call_began;
  ++state_->timed_calls;
  ++state_->calls->count;
}

// The others may wait for what this worker will not do any more. Unless all have failed together.
void PreemptionCheckpointHandler::tell_failure() const noexcept {
  auto* const workers = state_->workers();
  if (workers == nullptr) return;
  try {
    throw;
  } catch (const SharedFailure&) {
  } catch (const Error& error) {
    // What run() has put together from its replicas' is no SharedFailure any more.
    if (!error.others().empty() && workers->shared_failures() > state_->shared_failures) return;
    workers->abort(Error(error.code(), error.message()));
  } catch (...) {
    workers->abort(Error(ErrorCode::kAborted, describe(std::current_exception())));
  }
}

}  // namespace lockstep
