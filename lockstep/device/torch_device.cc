#include "lockstep/device/torch_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace lockstep {

c10::Device torch_device(const LogicalDevice& device) {
  if (device.type == "GPU") return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.physical_index)};
  return c10::Device(c10::DeviceType::CPU);
}

int count_devices(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type)->deviceCount() : 0;
}

}  // namespace lockstep
