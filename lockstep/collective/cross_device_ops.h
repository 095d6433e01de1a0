#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/reduce_op.h"
#include "lockstep/fwd.h"

namespace lockstep {

// How values that lie on several devices of this process become one. Whatever the choice, sums follow the canonical
// order (tree_sum.h), so the result has the same bits; the choices differ in which device does the work.
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

// Every device adds its share of the elements. `num_packs`: in how many pieces a batch of tensors travels, 0 for one
// piece a tensor; throws kInvalidArgument when negative.
class NcclAllReduce : public CrossDeviceOps {
 public:
  explicit NcclAllReduce(int num_packs = 1);

  at::Tensor reduce(ReduceOp op, std::span<const at::Tensor> values) const override;
  std::string explain(const std::vector<std::string>& devices) const override;

 private:
  const int num_packs_;
};

// Adds inside two halves of the devices, then between them: the two topmost levels of the canonical tree.
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
