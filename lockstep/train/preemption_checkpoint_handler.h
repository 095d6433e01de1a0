#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/base/exit_codes.h"
#include "lockstep/checkpoint/checkpoint_manager.h"

namespace lockstep {

struct TerminationConfig {
  // Asked every second, on a thread of its own ("lockstep:notice"), until it says that this machine will be taken away. SIGTERM
  // says the same, with or without it. It should answer within a second: the handler's destructor waits for it. What it throws
  // is a warning, and no answer.
  std::function<bool()> watcher = nullptr;
  // Called on every worker after the last save; empty: the process ends with kPreemptedExitCode, without destructors. If it
  // returns, run() throws kCancelled.
  std::function<void()> exit = nullptr;
  // How long the worker may go on after it was told. 0: all save once and end. Else all save at once, go on, and save again
  // and end when six calls of the average length, and the time that the first save took, are left.
  std::chrono::milliseconds grace_period = std::chrono::milliseconds(0);
  // Called on every worker in place of CheckpointManager::save.
  std::function<void()> save = nullptr;
};

// For a loop of one's own what BackupAndRestore is for fit(): when a worker is told to go, all of them save after the same call
// and end, and when the program is started again it goes on there.
//
//   checkpoint.track("model", model).track("data", iterator);
//   CheckpointManager manager(checkpoint, "backup");
//   PreemptionCheckpointHandler handler(manager);   // restores what is there
//   while (handler.total_run_calls() < steps)
//     handler.run([&] { return strategy.run(step, iterator.get_next()); });
//
// Outside run() of the strategy only; one thread at a time. With several workers all make the same calls, and each call waits
// for all of them, with the strategy's communication timeout. It counts its calls as a part "total_run_calls" of the
// checkpoint.
class PreemptionCheckpointHandler {
 public:
  // Restores the newest checkpoint; throws as CheckpointManager::restore_latest. `manager` must outlive it, and has one
  // handler: a second is kInvalidArgument.
  explicit PreemptionCheckpointHandler(CheckpointManager& manager, TerminationConfig config = {});
  // Keeps the newest two in `directory`; without a name, kInvalidArgument.
  PreemptionCheckpointHandler(Checkpoint checkpoint, const std::string& directory, TerminationConfig config = {});
  ~PreemptionCheckpointHandler();
  PreemptionCheckpointHandler(const PreemptionCheckpointHandler&) = delete;
  PreemptionCheckpointHandler& operator=(const PreemptionCheckpointHandler&) = delete;

  // The calls of run() that ended well, those before a restart included.
  std::int64_t total_run_calls() const noexcept;

  // Saves and ends if a worker was told to go; otherwise calls `fn` and returns what it returns. What `fn` throws ends the job
  // for good: all other workers throw an error of the same code (kAborted for what is no Error) that names this one. Throws
  // what saving throws, the same on all workers.
  template <typename F>
  std::invoke_result_t<F&> run(F&& fn) {
    begin_call();
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
        fn();
        end_call();
      } else {
        std::invoke_result_t<F&> result = fn();
        end_call();
        return result;
      }
    } catch (...) {
      tell_failure();
      throw;
    }
  }

 private:
  struct State;

  void begin_call();
  void end_call() noexcept;
  void tell_failure() const noexcept;  // of the exception that is being handled

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
