#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::split {

// The logical devices of one replica. Const.
struct LogicalDevices {
  std::vector<std::string> names = {};
  std::vector<c10::Device> torch_devices = {};

  int count() const noexcept { return static_cast<int>(torch_devices.size()); }
  c10::Device at(int device) const { return torch_devices[static_cast<std::size_t>(device)]; }
};
using Home = std::shared_ptr<const LogicalDevices>;

}  // namespace lockstep::split
