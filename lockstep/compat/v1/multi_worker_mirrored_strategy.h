#pragma once

#include "lockstep/compat/experimental/multi_worker_mirrored_strategy.h"
#include "lockstep/compat/v1/first_version.h"

namespace lockstep::compat::v1::experimental {

using lockstep::experimental::CollectiveCommunication;
using lockstep::experimental::CollectiveHints;

// lockstep::MultiWorkerMirroredStrategy with the older arguments (communication, cluster_resolver) and the first version's
// methods.
class MultiWorkerMirroredStrategy : public FirstVersion<lockstep::experimental::MultiWorkerMirroredStrategy> {
 public:
  using FirstVersion::FirstVersion;

  // With the scoped allocator for CollectiveReduce alone; where there is a cluster, with its leader, and with device filters
  // that leave this task; with collective_nccl where NCCL was asked for.
  ConfigProto update_config_proto(const ConfigProto& config) const override;
};

}  // namespace lockstep::compat::v1::experimental
