#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/train/model/hosted_link.h"
#include "lockstep/train/model/model.h"
#include "lockstep/train/model/step_runner.h"

namespace lockstep {

struct Model::State {
  // Const after construction.
  std::shared_ptr<ModuleReplicas> module;
  internal::Forward forward;
  std::unique_ptr<internal::HostedLink> hosted = nullptr;  // null: the module is mirrored

  // Set by compile().
  std::unique_ptr<internal::StepRunner> runner = nullptr;

  // Used on the thread that called fit().
  bool is_fitting = false;
  bool is_in_epoch = false;  // its losses and metrics are being added up
};

namespace internal {

// The data as the model's replicas get it; `policy`: in place of the dataset's own.
DistributedDataset distribute(Strategy& strategy, const ModelData& data, std::optional<AutoShardPolicy> policy = std::nullopt);

// Throws kInvalidArgument for data without an end.
void require_finite(const DistributedDataset& data, const char* what, const char* advice);

// Of a hosted module that was compiled: the coordinator's copy gets the servers' values, and the other way round.
void pull_hosted(const Model& model);
void assign_hosted(const Model& model);

// Of a hosted module; none: it has no hosted embedding. Throws kFailedPrecondition before compile().
NamedVariables tables_of(const Model& model, const char* what);

// The weights as the coordinator's copy and the tables are now, in a file: see save_weights.
void write_weights(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata);

// Rows of tensors as the model reads them.
ModelData data_of(const Model& model, const DatasetCreator::Rows& rows);

// Rows of tensors as batches that are divided by DATA.
data::Dataset batches_of(const Tensors& tensors, std::int64_t batch_size, bool is_shuffled);

// The parts of one global batch, as a distributed dataset would give them.
DistributedIterator::Batch split(ReplicaSet& replicas, const data::Element& batch);

// Throws kFailedPrecondition before compile().
StepRunner& runner_of(const Model& model, const char* what);

// Throws kFailedPrecondition while fit() runs: a callback may not ask for it.
void require_idle(const Model& model, const char* what);

ReplicaSet& replicas_of(const Model& model);

// Of the optimizer, here or on the servers.
double learning_rate_of(const Model& model);
void set_learning_rate_of(const Model& model, double rate);

// Evaluation mode, and afterwards what was before: the mode and, in the middle of an epoch, its losses and metrics.
class EvaluationScope {
 public:
  explicit EvaluationScope(Model& model);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  void set_mode(bool is_training);

  Model::State& state_;
  const bool was_training_;
  std::optional<StepRunner::Kept> kept_;
};

// One pass of evaluation; the runner's losses and metrics are those of the data afterwards.
Logs evaluate(Model& model, const DistributedDataset& data, const EvaluateOptions& options, Training& training);

}  // namespace internal
}  // namespace lockstep
