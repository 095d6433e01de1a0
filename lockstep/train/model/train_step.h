#pragma once

#include <cstdint>

#include "lockstep/train/model/forward.h"

namespace lockstep {

namespace internal {
class StepRunner;
struct ReplicaBatch;
}  // namespace internal

// One replica's part of one training step. A train_step of one's own is made of these; the default one is
//
//   [](TrainStep& step) {
//     auto outputs = step.forward();
//     step.minimize(step.loss(outputs));
//     step.update_metrics(outputs);
//   }
//
// Inside run(): get_replica_context() is the replica's. A replica whose part of the batch is empty is not asked to compute; its
// gradients count as zero.
class TrainStep {
 public:
  TrainStep(internal::StepRunner& runner, const internal::ReplicaBatch& batch) : runner_(runner), batch_(batch) {}
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  const Tensors& inputs() const noexcept;
  const Tensors& targets() const noexcept;
  // One for all outputs, one for each, or none; class weights included.
  const Tensors& sample_weights() const noexcept;
  std::int64_t rows() const noexcept;
  // Of the whole batch, over all replicas of the job.
  std::int64_t global_rows() const noexcept;

  // The model's outputs for the inputs, or for others, in the precision that was compiled.
  Tensors forward();
  Tensors forward(const Tensors& inputs);

  // This replica's share of the compiled losses: the sum over all replicas is the mean over the examples of the batch. It is
  // counted in the logs. Add terms of your own scaled by rows() / global_rows().
  at::Tensor loss(const Tensors& outputs);

  // backward(), the sum over the replicas, and the optimizer's step. Once a step, in every replica.
  void minimize(const at::Tensor& loss);

  void update_metrics(const Tensors& outputs);

 private:
  internal::StepRunner& runner_;
  const internal::ReplicaBatch& batch_;
};

}  // namespace lockstep
