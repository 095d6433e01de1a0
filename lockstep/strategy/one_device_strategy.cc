#include "lockstep/strategy/one_device_strategy.h"

#include <ATen/ATen.h>

namespace lockstep {

OneDeviceStrategy::OneDeviceStrategy(const std::string& device, const ReplicaSetOptions& options)
    : Strategy({find_logical_device(device)}, options, default_cross_device_ops()) {}

}  // namespace lockstep
