#pragma once

#include <vector>

#include "lockstep/device/device_assignment.h"
#include "lockstep/device/devices.h"
#include "lockstep/split/logical_devices.h"

namespace lockstep {

// The devices of replicas that own several.
struct AssignedDevices {
  std::vector<LogicalDevice> first = {};  // of each replica: the one on which it is
  std::vector<split::Home> all = {};      // of each replica
};

// Throws kInvalidArgument for an assignment that names devices that are not in the list.
AssignedDevices assign_devices(const std::vector<LogicalDevice>& devices, const DeviceAssignment& assignment);

}  // namespace lockstep
