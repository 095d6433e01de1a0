#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/compat/v1/first_version.h"
#include "lockstep/strategy/mirrored_strategy.h"

namespace lockstep::compat::v1 {

// lockstep::MirroredStrategy with the first version's arguments and methods.
class MirroredStrategy : public FirstVersion<lockstep::MirroredStrategy> {
 public:
  // `cross_device_ops` null: ReductionToOneDevice. Errors as lockstep::MirroredStrategy's.
  explicit MirroredStrategy(const std::vector<std::string>& devices = {},
                            std::shared_ptr<const CrossDeviceOps> cross_device_ops = nullptr);

  // With isolate_session_state.
  ConfigProto update_config_proto(const ConfigProto& config) const override;
};

}  // namespace lockstep::compat::v1
