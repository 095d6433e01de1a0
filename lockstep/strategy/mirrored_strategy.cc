#include "lockstep/strategy/mirrored_strategy.h"

#include <ATen/ATen.h>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/strategy/strategy_devices.h"

namespace lockstep {
namespace {

std::vector<std::string> devices_to_use(const std::vector<std::string>& named) {
  if (!named.empty()) return named;
  const auto gpus = list_logical_devices("GPU");
  return gpus.empty() ? list_logical_devices("CPU") : gpus;
}

std::vector<LogicalDevice> prepared(std::vector<LogicalDevice> devices, const MirroredOptions& options) {
  const auto replicas = devices.size();
  return prepare_devices(std::move(devices), options.freed_memory, replicas);
}

ReplicaSetOptions replica_options(const MirroredOptions& options) {
  options.communication.validate();
  return {options.communication, options.intra_op_threads, options.seed};
}

}  // namespace

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const MirroredOptions& options)
    : Strategy(prepared(resolve_devices("MirroredStrategy", devices_to_use(devices), options.replicas_per_device), options),
               replica_options(options), options.cross_device_ops ? options.cross_device_ops : default_cross_device_ops()) {
  std::vector<std::string> names;
  for (const auto& device : replicas().devices()) names.push_back(device.name);
  log_info(str("MirroredStrategy: ", names.size(), " replicas on ", join(", ", names), ", ", replicas().intra_op_threads(),
               " intra-op threads each"));
  log_once(LogLevel::kInfo, cross_device_ops().explain(names));
}

}  // namespace lockstep
