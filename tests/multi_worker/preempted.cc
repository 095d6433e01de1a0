#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "lockstep/train/preemption_checkpoint_handler.h"
#include "tests/multi_worker/scenarios.h"

namespace lockstep::testing {

// A loop of 8 times 15 calls, each of which adds 1 a replica to a variable. In its first life the worker `who` gets SIGTERM in
// call `told`, or throws in call `throws` (of itself; in_replica=1: inside the strategy's run()). work: milliseconds a call.
void preempted(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  Variable sum(0.0, {.aggregation = VariableAggregation::kSum});
  Checkpoint checkpoint(strategy);
  checkpoint.track("sum", sum);
  CheckpointManager manager(checkpoint, parameters.text("folder", "preempted"));
  PreemptionCheckpointHandler handler(manager, {.grace_period = std::chrono::milliseconds(parameters.number("grace", 0))});
  const auto first = handler.total_run_calls();
  std::cout << "begins " << first << " with " << sum.read_value().item<double>() << std::endl;
  const auto is_now = [&](const char* what) {
    return first == 0 && strategy.worker_rank() == parameters.number("who", 0) &&
           handler.total_run_calls() == parameters.number(what, -1);
  };
  const bool is_in_replica = parameters.number("in_replica", 0) == 1;
  const auto throw_now = [] { throw Error(ErrorCode::kOutOfRange, "no memory is left"); };
  while (handler.total_run_calls() < 8 * 15)
    handler.run([&] {
      if (is_now("told")) std::raise(SIGTERM);
      if (is_now("throws") && !is_in_replica) throw_now();
      strategy.run([&](ReplicaContext&) {
        if (is_now("throws") && is_in_replica) throw_now();
        sum.assign_add(torch::ones({}));
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(parameters.number("work", 0)));
    });
  std::cout << "sum " << sum.read_value().item<double>() << std::endl;
}

}  // namespace lockstep::testing
