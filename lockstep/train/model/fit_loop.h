#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/model/model_state.h"
#include "lockstep/train/model/step_news.h"

namespace lockstep::internal {

// One fit().
//
// Note [a step of fit]
// 1. The next batch is taken; at the end of the data the epoch ends, or, with steps_per_epoch, a new pass begins.
// 2. Workers tell each other their rows, and whether one wants to stop: see StepNews. Who asks to stop is heard by all before
//    the same step, which is the last.
// 3. The replicas run, with the rows of the whole batch as the divisor of their losses.
// 4. Callbacks.
class FitLoop {
 public:
  FitLoop(Model& model, const FitOptions& options);

  History run(const ModelData& data);

  // See Note [resuming a fit]. All workers call them; restore() before the first epoch.
  CheckpointPart save();
  void restore(const CheckpointPart& part);
  std::vector<std::string> problems(const CheckpointPart& part);

 private:
  void begin(const ModelData& data);
  void begin_hosted(const ModelData& data);
  void begin_here(const ModelData& data);
  void train_on_workers();
  std::optional<std::int64_t> steps_to_pause() const;
  void note_hosted(const StepCounts& counts);
  Logs logs_so_far(bool is_local);
  History run_epochs();
  void tell_failure() noexcept;
  void train_epoch();
  std::optional<DistributedIterator::Batch> next_batch();
  bool step();
  std::int64_t meet(const DistributedIterator::Batch& batch);
  void end_epoch(History& history);
  void validate(Logs& logs);
  void share(Logs& logs) const;
  bool is_any(bool here) const;
  void agree_on_stop();
  void restore_sums(const CheckpointPart& part);
  void save_hosted(CheckpointPart& part);
  void restore_hosted(const CheckpointPart& part);
  std::vector<std::string> sum_problems(const CheckpointPart& part);
  const Checkpoint::State& job();
  metrics::Direction direction_of(const std::string& logged) const;
  template <typename F>
  void tell(F&& call);

  // Const after construction.
  Model& model_;
  const FitOptions& options_;
  StepRunner& runner_;
  WorkerGroup* const workers_;
  Callbacks callbacks_;

  // Set by run().
  std::optional<DistributedDataset> data_;
  std::optional<DistributedDataset> validation_;
  std::optional<HostedEpochs> hosted_;  // in their place, where steps run on workers
  std::optional<HostedEvaluation> hosted_validation_;

  // Used only on the thread that called fit().
  TrainingProgress progress_;
  StepClock clock_;
  StepStats stats_;  // of this epoch
  Training training_;
  std::optional<DistributedIterator> iterator_;
  std::shared_ptr<Checkpoint::State> job_;  // made when asked for
  StepTimes last_times_;
  std::int64_t first_step_ = 0;     // of this epoch, here
  bool is_resumed_ = false;         // in the middle of an epoch
  bool is_between_epochs_ = false;  // the callbacks hear of the end of one
  bool is_told_to_stop_ = false;
};

}  // namespace lockstep::internal
