#include "lockstep/strategy/strategy_devices.h"

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/allocator.h"
#include "lockstep/device/blas.h"
#include "lockstep/device/max_pool.h"

namespace lockstep {

std::vector<LogicalDevice> resolve_devices(const std::string& who, const std::vector<std::string>& names,
                                           int replicas_per_device) {
  if (replicas_per_device < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str(who, ": replicas_per_device is ", replicas_per_device, "; it must be at least 1"));
  constexpr std::size_t kMostReplicas = 4096;
  if (names.size() * static_cast<std::size_t>(replicas_per_device) > kMostReplicas)
    throw Error(ErrorCode::kInvalidArgument, str(who, ": ", names.size(), " devices with ", replicas_per_device,
                                                 " replicas each; a process has at most ", kMostReplicas, " replicas"));
  std::vector<LogicalDevice> devices;
  std::set<std::string> seen;
  for (const auto& name : names) {
    const auto device = find_logical_device(name);
    if (!seen.insert(device.name).second)
      throw Error(ErrorCode::kInvalidArgument, str(who, ": device '", name, "' (", device.name,
                                                   ") is named twice; name each device once, and use "
                                                   "replicas_per_device to put several replicas on one"));
    devices.insert(devices.end(), static_cast<std::size_t>(replicas_per_device), device);
  }
  return devices;
}

std::vector<LogicalDevice> prepare_devices(std::vector<LogicalDevice> devices, FreedMemory freed_memory, std::size_t replicas) {
  const bool is_on_cpu = devices.at(0).type == "CPU";
  if (is_on_cpu) {
    warn_about_slow_blas();
    use_own_max_pool();
  }
  if (is_on_cpu && replicas > 1 && freed_memory == FreedMemory::kKeep) keep_freed_memory();
  return devices;
}

}  // namespace lockstep
