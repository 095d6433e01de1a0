#pragma once

#include <c10/core/Device.h>

#include "lockstep/device/devices.h"

namespace lockstep {

// Where LibTorch keeps the tensors of a logical device.
c10::Device torch_device(const LogicalDevice& device);

// How many devices of LibTorch's type this process sees.
int count_devices(c10::DeviceType type);

}  // namespace lockstep
