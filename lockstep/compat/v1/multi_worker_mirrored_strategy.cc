#include "lockstep/compat/v1/multi_worker_mirrored_strategy.h"

#include <ATen/ATen.h>

#include "lockstep/replica/replica_set.h"

namespace lockstep::compat::v1::experimental {

ConfigProto MultiWorkerMirroredStrategy::update_config_proto(const ConfigProto& config) const {
  return internal::config_for_worker(config, cluster_resolver(), replicas().options().communication.implementation);
}

}  // namespace lockstep::compat::v1::experimental
