#include "lockstep/strategy/mirrored_strategy.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/strategy/logical_devices.h"
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

}  // namespace

// The devices, and what the replicas on them are told.
struct MirroredStrategy::Replicas {
  Replicas(const std::vector<std::string>& names, const MirroredOptions& given)
      : devices(resolve_devices("MirroredStrategy", devices_to_use(names), given.replicas_per_device)),
        options({given.communication, given.intra_op_threads, given.seed}) {
    given.communication.validate();
    if (given.device_assignment) assign(given);
    devices = prepared(std::move(devices), given);
  }

  void assign(const MirroredOptions& given) {
    if (given.replicas_per_device != 1)
      throw Error(
          ErrorCode::kInvalidArgument,
          "MirroredStrategy: both device_assignment and replicas_per_device are given; a replica has several devices, or a "
          "device several replicas");
    auto assigned = assign_devices(devices, *given.device_assignment);
    devices = std::move(assigned.first);
    options.logical_devices = std::move(assigned.all);
  }

  std::vector<LogicalDevice> devices;
  ReplicaSetOptions options;
};

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const MirroredOptions& options)
    : MirroredStrategy(Resolved(), Replicas(devices, options), options) {}

MirroredStrategy::MirroredStrategy(Resolved, Replicas&& on, const MirroredOptions& options)
    : Strategy(std::move(on.devices), on.options,
               options.cross_device_ops ? options.cross_device_ops : default_cross_device_ops()) {
  std::vector<std::string> names;
  for (const auto& device : replicas().devices()) names.push_back(device.name);
  log_info(str("MirroredStrategy: ", names.size(), " replicas on ", join(", ", names), ", ", replicas().intra_op_threads(),
               " intra-op threads each"));
  log_once(LogLevel::kInfo, cross_device_ops().explain(names));
}

}  // namespace lockstep
