#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/trackable.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/train/logs.h"
#include "lockstep/train/model/hosted_trainer.h"
#include "lockstep/train/model/model.h"
#include "lockstep/variable/named_variables.h"

// What the coordinator has of a Model over a hosted module.
//
// Note [fit on workers]
// 1. A step is one closure: the worker that is free takes its next batch, gets the weights, computes, sends the gradients to
//    the servers, and returns what it has counted: sums of losses and metrics.
// 2. The coordinator schedules a bounded number of steps ahead, and adds up what they return when they have ended. So each step
//    is counted once, whoever ran it, and however often it was begun: the closure of a lost worker runs again elsewhere.
// 3. At the end of an epoch, and where a callback wants a pause (Callback::steps_until_pause), all steps have ended (join), and
//    the logs are exact. Only then weights are looked at and rates set.
// 4. The data of a worker that was started again begins anew.
//
// Note [resuming a fit on workers]
// 1. In a pause nothing changes on the servers: they write their variables with the optimizers' states (server_part), and the
//    coordinator where training is (Note [resuming a fit]), with the learning rate and each worker's place in its data. The
//    first such checkpoint is of the beginning.
// 2. A coordinator that is started again has the servers take back what the checkpoint has, whatever was done since, and the
//    workers read over what they had taken (HostedInput). With one worker whose data comes in the same order the final weights
//    are those of a training that was never interrupted, bit for bit.
// 3. Not kept: the random generators of workers (dropout), and orders that no seed says (shuffle() without one).

namespace lockstep {

class ParameterServerStrategy;

namespace internal {

struct HostedLink {
  // Const after construction.
  ParameterServerStrategy* strategy = nullptr;
  ClusterCoordinator coordinator;
  std::function<void(const OptimizerSpec&)> set_optimizer = nullptr;
  std::function<void(double)> set_learning_rate = nullptr;
  std::function<void()> pull = nullptr;    // into the coordinator's copy
  std::function<void()> assign = nullptr;  // of the coordinator's copy
  std::function<NamedVariables()> tables = nullptr;
  std::function<std::shared_ptr<Trackable>()> part = nullptr;  // of a checkpoint: what the servers have of it
  std::function<PerWorkerValues<HostedCopy>()> make_copies = nullptr;

  // Set by compile().
  std::optional<OptimizerSpec> optimizer = std::nullopt;
  std::string optimizer_text = "";
  TrainerRecipe recipe = {};
  std::int64_t evaluation_shards = 0;
  double rate = 0;  // where there is no schedule

  std::optional<PerWorkerValues<HostedCopy>> copies = std::nullopt;         // made when the optimizer is known
  std::optional<PerWorkerValues<HostedTrainer>> unweighted = std::nullopt;  // without class weights

  PerWorkerValues<HostedTrainer> trainers(const std::map<std::int64_t, double>& class_weight);
  bool has_schedule() const { return optimizer->rules().learning_rate.is_schedule(); }
  double learning_rate(std::int64_t iterations) const;
  void change_learning_rate(double wanted);
};

// The coordinator's copy, as the strategy's one replica has it.
std::shared_ptr<ModuleReplicas> coordinators_copy(ParameterServerStrategy& strategy,
                                                  const std::shared_ptr<torch::nn::Module>& module);

// Takes what was compiled. Throws kUnimplemented for what workers or servers cannot be told, kFailedPrecondition for another
// optimizer when the servers have the variables already.
void compile_hosted(HostedLink& link, const CompileOptions& options, const torch::nn::Module& module);

// Throws kInvalidArgument for callbacks that must be told of every step at its end.
void require_late_callbacks(const Callbacks& callbacks, const char* what);

// What steps have added up.
class HostedSums {
 public:
  void add(const StepCounts& counts);
  // The runner's losses and metrics are these; and the other way round.
  void show(StepRunner& runner) const;
  void take(StepRunner& runner);

 private:
  std::vector<double> losses_;
  std::vector<std::vector<at::Tensor>> metrics_;
};

// The training steps of a fit().
class HostedEpochs {
 public:
  // `steps`: of an epoch, or kUntilDataEnds. Throws kUnimplemented for data that cannot be sent.
  HostedEpochs(HostedLink& link, const ModelData& data, const FitOptions& options);

  std::int64_t steps() const noexcept { return steps_; }

  struct Stretch {
    std::int64_t epoch = 0;
    std::optional<std::int64_t> steps = std::nullopt;  // at most; absent: until the data ends
    // Told of every step that has ended, and says whether to go on.
    std::function<bool(const StepCounts&)> on_end = nullptr;
  };
  // So many steps of an epoch. Returns when none runs; false: the data has ended, or on_end has said no.
  bool run(const Stretch& stretch);
  // Of the epoch.
  HostedSums& sums() noexcept { return sums_; }

  // Where the workers' data is, in a pause; `is_between`: of two epochs. restore() before the first step.
  void save(CheckpointPart& part, bool is_between) const;
  void restore(const CheckpointPart& part);

 private:
  // Const after construction.
  HostedLink& link_;
  const PerWorkerValues<data::Dataset> data_;
  const PerWorkerValues<HostedTrainer> trainers_;
  const std::int64_t steps_;

  // Used only on the thread that called fit().
  std::optional<PerWorkerValues<HostedInput>> inputs_;  // made for the first step
  std::vector<InputPlace> places_;                      // by worker
  HostedSums sums_;
};

// Evaluation on workers, as often as it is wanted.
class HostedEvaluation {
 public:
  // Throws kInvalidArgument where neither steps nor shards are known.
  HostedEvaluation(HostedLink& link, const ModelData& data, std::optional<std::int64_t> steps, const char* what);

  // The runner's losses and metrics are those of the data afterwards.
  Logs run(StepRunner& runner, const Callbacks& callbacks, Training& training);

 private:
  RemoteValue<StepCounts> schedule(std::int64_t step);

  // Const after construction.
  HostedLink& link_;
  const std::optional<std::int64_t> steps_;  // absent: by shards
  const std::int64_t shards_;
  const PerWorkerValues<data::Dataset> data_;
  const PerWorkerValues<HostedTrainer> trainers_;

  // Used only on the thread that called evaluate() or fit().
  std::optional<PerWorkerValues<HostedInput>> inputs_;
};

// One batch on one worker.
StepCounts run_on_batch(HostedLink& link, const data::Element& batch, bool is_training);

}  // namespace internal
}  // namespace lockstep
