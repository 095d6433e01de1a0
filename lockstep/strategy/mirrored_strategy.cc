#include "lockstep/strategy/mirrored_strategy.h"

#include <ATen/ATen.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/device/allocator.h"
#include "lockstep/device/blas.h"
#include "lockstep/device/device_spec.h"

namespace lockstep {
namespace {

std::vector<std::string> devices_to_use(const std::vector<std::string>& named) {
  if (!named.empty()) return named;
  const auto gpus = list_logical_devices("GPU");
  return gpus.empty() ? list_logical_devices("CPU") : gpus;
}

std::vector<LogicalDevice> resolve(const std::vector<std::string>& named, int replicas_per_device) {
  if (replicas_per_device < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("MirroredStrategy: replicas_per_device is ", replicas_per_device, "; it must be at least 1"));
  constexpr std::size_t kMostReplicas = 4096;
  std::vector<LogicalDevice> devices;
  std::set<std::string> seen;
  const auto names = devices_to_use(named);
  if (names.size() * static_cast<std::size_t>(replicas_per_device) > kMostReplicas)
    throw Error(ErrorCode::kInvalidArgument, str("MirroredStrategy: ", names.size(), " devices with ", replicas_per_device,
                                                 " replicas each; a process has at most ", kMostReplicas, " replicas"));
  for (const auto& name : names) {
    const auto device = find_logical_device(name);
    if (!seen.insert(device.name).second)
      throw Error(ErrorCode::kInvalidArgument, str("MirroredStrategy: device '", name, "' (", device.name,
                                                   ") is named twice; name each device once, and use "
                                                   "replicas_per_device to put several replicas on one"));
    devices.insert(devices.end(), static_cast<std::size_t>(replicas_per_device), device);
  }
  return devices;
}

// Before the replica threads exist: a thread keeps the allocator arena that it starts with.
std::vector<LogicalDevice> prepare(std::vector<LogicalDevice> devices, FreedMemory freed_memory) {
  const bool is_on_cpu = devices.at(0).type == "CPU";
  if (is_on_cpu) warn_about_slow_blas();
  if (is_on_cpu && devices.size() > 1 && freed_memory == FreedMemory::kKeep) keep_freed_memory();
  return devices;
}

ReplicaSetOptions replica_options(const MirroredOptions& options) {
  options.communication.validate();
  return {options.communication, options.intra_op_threads, options.seed};
}

}  // namespace

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const MirroredOptions& options)
    : Strategy(prepare(resolve(devices, options.replicas_per_device), options.freed_memory), replica_options(options),
               options.cross_device_ops ? options.cross_device_ops : default_cross_device_ops()) {
  std::vector<std::string> names;
  for (const auto& device : replicas().devices()) names.push_back(device.name);
  log_info(str("MirroredStrategy: ", names.size(), " replicas on ", join(", ", names), ", ", replicas().intra_op_threads(),
               " intra-op threads each"));
  log_once(LogLevel::kInfo, cross_device_ops().explain(names));
}

}  // namespace lockstep
