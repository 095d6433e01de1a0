#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/reduce_op.h"
#include "lockstep/fwd.h"

namespace lockstep {

// How Strategy::reduce, reduce_to and their kin make one value of those that lie on several devices of this process.
// Whatever the choice, sums follow the canonical order (tree_sum.h), so the result has the same bits. Collectives inside
// run() and gradient sums always go through the local engine, in which every replica adds its share.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  // The reduction of the replicas' values, on the device that does the work.
  virtual at::Tensor reduce(ReduceOp op, std::span<const at::Tensor> values) const = 0;

  // One line: what this choice means on these devices. Logged once by the strategy.
  virtual std::string explain(const std::vector<std::string>& devices) const = 0;
};

// Adds everything on one device ("" the first value's), then copies. `accumulation_fn`, when given, adds the list.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  using AccumulationFn = std::function<at::Tensor(std::span<const at::Tensor>)>;

  explicit ReductionToOneDevice(std::string reduce_to_device = "", AccumulationFn accumulation_fn = nullptr);

  at::Tensor reduce(ReduceOp op, std::span<const at::Tensor> values) const override;
  std::string explain(const std::vector<std::string>& devices) const override;

 private:
  const std::string reduce_to_device_;
  const AccumulationFn accumulation_fn_;
};

// The name for GPUs; there is no NCCL in the local engine, whose sums this uses. `num_packs` is kept for programs that
// give it (the local engine copies nothing, so it packs nothing); throws kInvalidArgument when negative.
class NcclAllReduce : public CrossDeviceOps {
 public:
  explicit NcclAllReduce(int num_packs = 1);

  at::Tensor reduce(ReduceOp op, std::span<const at::Tensor> values) const override;
  std::string explain(const std::vector<std::string>& devices) const override;

 private:
  const int num_packs_;
};

// The name for machines whose GPUs are linked in two halves: the canonical tree adds neighbours first in any case.
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  explicit HierarchicalCopyAllReduce(int num_packs = 1);

  at::Tensor reduce(ReduceOp op, std::span<const at::Tensor> values) const override;
  std::string explain(const std::vector<std::string>& devices) const override;

 private:
  const int num_packs_;
};

// What a strategy uses when nothing was chosen.
std::shared_ptr<const CrossDeviceOps> default_cross_device_ops();

}  // namespace lockstep
