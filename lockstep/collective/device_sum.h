#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "lockstep/collective/sum_tree.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/worker_bytes.h"

namespace lockstep {

// The replicas of a worker as leaves of the tree over all of them.
std::vector<SumNode> leaves_of_worker(const WorkerLayout& layout, int worker);

// The arrays of this worker's subtrees, on `device`, from one of each of its replicas. Queued on the current streams.
std::vector<at::Tensor> sum_subtrees(const SumPlan& plan, std::vector<at::Tensor> arrays, c10::Device device);

// CanonicalSum for tensors, in whatever memory the engine serves: the same additions in the same order, made by LibTorch.
// All workers are on one level: an engine for GPUs knows itself which of them are near. See Note [canonical all-reduce].
class DeviceSum {
 public:
  // The engine outlives it.
  DeviceSum(Transport& engine, const WorkerLayout& layout);

  // Of this worker's replicas: what it brings.
  const SumPlan& local() const noexcept { return local_; }
  bool brings_one_each() const noexcept;

  // `result` becomes the sum over all replicas. `mine`: the arrays of this worker's subtrees, one of which it may be; all
  // have one dimension and are dense. The engine's stream is the current one.
  void reduce(std::span<const at::Tensor> mine, const at::Tensor& result);

 private:
  void reduce_piece(std::span<const at::Tensor> mine, const at::Tensor& result);

  // Const after construction.
  Transport& engine_;
  SumPlan local_;
  std::vector<std::int64_t> counts_;  // by worker: how many subtrees it brings
  SumPlan plan_;                      // of all of them
};

// A dense tensor's memory.
Bytes bytes_of(const at::Tensor& tensor);

}  // namespace lockstep
