#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "lockstep/variable/mirrored.h"

namespace lockstep {

struct SyncBatchNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

// Batch normalisation with the statistics of the whole batch, over all replicas of the job, whatever part of it each has:
// training with R replicas is what one process does. Input [rows, num_features, ...]. Names and defaults are those of
// LibTorch's BatchNorm2d, whose weights it takes. Outside run(), and in evaluation, it is LibTorch's. All replicas must call it
// equally often, one with no rows too.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options);
  explicit SyncBatchNormImpl(std::int64_t num_features)
      : SyncBatchNormImpl(SyncBatchNormOptions{.num_features = num_features}) {}

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  SyncBatchNormOptions options_;
};
TORCH_MODULE(SyncBatchNorm);

namespace internal {

int sync_batch_norms(const ModuleReplicas& model);
bool has_sync_batch_norm(const ModuleReplicas& model);

}  // namespace internal

// Makes the batch norms (torch::nn::BatchNorm1d, 2d, 3d) that a model has as they are, members of its class included, take
// their statistics over all replicas, from the next run() on. Returns how many there are; none is kInvalidArgument.
template <typename M>
int convert_sync_batch_norm(const MirroredModule<M>& model) {
  return internal::sync_batch_norms(*model.replicas());
}

}  // namespace lockstep
