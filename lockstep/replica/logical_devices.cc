#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_set.h"

namespace lockstep {

const split::Home& ReplicaSet::logical_devices(int replica) const {
  torch_device(replica);  // there is such a replica
  if (options().logical_devices.empty())
    throw Error(ErrorCode::kUnimplemented,
                "the replicas of this strategy have no logical devices; make it with MirroredOptions::device_assignment");
  return options().logical_devices[static_cast<std::size_t>(replica)];
}

const split::Home& ReplicaSet::require_logical_device(int replica, int logical_device_id) const {
  const auto& home = logical_devices(replica);
  if (logical_device_id >= 0 && logical_device_id < home->count()) return home;
  throw Error(ErrorCode::kInvalidArgument,
              str("logical device ", logical_device_id, " does not exist: replica ", first_replica() + replica, " has ",
                  home->count(), ", numbered from 0 (", join(", ", home->names), ")"));
}

}  // namespace lockstep
