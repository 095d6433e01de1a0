#pragma once

#include <string>

#include "lockstep/strategy/strategy.h"

namespace lockstep {

// One replica on a named device: the same program without distribution, for comparison and for debugging.
class OneDeviceStrategy : public Strategy {
 public:
  // Throws kInvalidArgument when there is no such device.
  explicit OneDeviceStrategy(const std::string& device, const ReplicaSetOptions& options = {});

  std::string name() const override { return "OneDeviceStrategy"; }
};

}  // namespace lockstep
