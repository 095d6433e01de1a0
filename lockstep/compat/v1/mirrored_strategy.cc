#include "lockstep/compat/v1/mirrored_strategy.h"

#include <ATen/ATen.h>

#include <utility>

namespace lockstep::compat::v1 {

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices,
                                   std::shared_ptr<const CrossDeviceOps> cross_device_ops)
    : FirstVersion(devices, MirroredOptions{.cross_device_ops = std::move(cross_device_ops)}) {}

ConfigProto MirroredStrategy::update_config_proto(const ConfigProto& config) const {
  return internal::config_for_devices(config);
}

}  // namespace lockstep::compat::v1
