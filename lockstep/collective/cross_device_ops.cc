#include "lockstep/collective/cross_device_ops.h"

#include <ATen/ATen.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/torch_device.h"

namespace lockstep {
namespace {

int checked_packs(const char* who, int num_packs) {
  if (num_packs < 0)
    throw Error(ErrorCode::kInvalidArgument, str(who, ": num_packs is ", num_packs, "; it must be 0 (no packing) or more"));
  return num_packs;
}

bool has_gpu(const std::vector<std::string>& devices) {
  return std::ranges::any_of(devices, [](const std::string& name) { return DeviceSpec::parse(name).device_type == "GPU"; });
}

}  // namespace

ReductionToOneDevice::ReductionToOneDevice(std::string reduce_to_device, AccumulationFn accumulation_fn)
    : reduce_to_device_(std::move(reduce_to_device)), accumulation_fn_(std::move(accumulation_fn)) {}

at::Tensor ReductionToOneDevice::reduce(ReduceOp op, std::span<const at::Tensor> values) const {
  for (const auto& value : values) require_dense(value, "reduce");
  require_equal_values(values, "reduce");
  std::vector<at::Tensor> here(values.begin(), values.end());
  if (!reduce_to_device_.empty()) {
    const auto device = torch_device(find_logical_device(reduce_to_device_));
    for (auto& value : here) value = value.to(device);
  }
  if (!accumulation_fn_) return reduce_values(op, here);
  if (op == ReduceOp::kMean)
    for (auto& value : here) value = without_overflow(value);
  const auto sum = accumulation_fn_(here);
  return op == ReduceOp::kSum ? sum : mean_of_sum(sum, static_cast<std::int64_t>(here.size()));
}

std::string ReductionToOneDevice::explain(const std::vector<std::string>& devices) const {
  return str("ReductionToOneDevice: values are added on ", reduce_to_device_.empty() ? devices.at(0) : reduce_to_device_,
             " and copied from there");
}

NcclAllReduce::NcclAllReduce(int num_packs) : num_packs_(checked_packs("NcclAllReduce", num_packs)) {}

at::Tensor NcclAllReduce::reduce(ReduceOp op, std::span<const at::Tensor> values) const { return reduce_values(op, values); }

std::string NcclAllReduce::explain(const std::vector<std::string>& devices) const {
  return str("NcclAllReduce (num_packs ", num_packs_,
             "): ", has_gpu(devices) ? "GPU" : "there is no GPU among the devices; CPU",
             " values are added by the local engine, without NCCL");
}

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(int num_packs)
    : num_packs_(checked_packs("HierarchicalCopyAllReduce", num_packs)) {}

at::Tensor HierarchicalCopyAllReduce::reduce(ReduceOp op, std::span<const at::Tensor> values) const {
  return reduce_values(op, values);
}

std::string HierarchicalCopyAllReduce::explain(const std::vector<std::string>& devices) const {
  return str("HierarchicalCopyAllReduce (num_packs ", num_packs_, "): ", devices.size(),
             " devices are added in the canonical tree, halves first, through "
             "the local engine");
}

std::shared_ptr<const CrossDeviceOps> default_cross_device_ops() {
  static const auto instance = std::make_shared<const ReductionToOneDevice>();
  return instance;
}

}  // namespace lockstep
