#pragma once

#include <memory>
#include <optional>

#include "lockstep/train/model/model.h"
#include "lockstep/train/model/step_runner.h"

namespace lockstep {

struct Model::State {
  // Const after construction.
  std::shared_ptr<ModuleReplicas> module;
  internal::Forward forward;

  // Set by compile().
  std::unique_ptr<internal::StepRunner> runner = nullptr;
};

namespace internal {

// The data as the model's replicas get it; `policy`: in place of the dataset's own.
DistributedDataset distribute(Strategy& strategy, const ModelData& data, std::optional<AutoShardPolicy> policy = std::nullopt);

// Rows of tensors as batches that are divided by DATA.
data::Dataset batches_of(const Tensors& tensors, std::int64_t batch_size, bool is_shuffled);

// The parts of one global batch, as a distributed dataset would give them.
DistributedIterator::Batch split(ReplicaSet& replicas, const data::Element& batch);

// Throws kFailedPrecondition before compile().
StepRunner& runner_of(const Model& model, const char* what);

ReplicaSet& replicas_of(const Model& model);

// One pass of evaluation; the runner's losses and metrics are those of the data afterwards.
Logs evaluate(Model& model, const DistributedDataset& data, const EvaluateOptions& options, Training& training);

}  // namespace internal
}  // namespace lockstep
