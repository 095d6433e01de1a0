#include "lockstep/strategy/logical_devices.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/device/torch_device.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/split/split_tensor.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {
namespace {

void require_partition(const at::Tensor& tensor, const std::vector<std::int64_t>& counts, int devices) {
  const auto given = lockstep::str("experimental_split_to_logical_devices: a tensor of shape ", tensor.sizes(),
                                   ", divided by [", join(", ", counts), "]");
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, given + why); };
  if (counts.size() != static_cast<std::size_t>(tensor.dim()))
    refuse(str(": it has ", tensor.dim(), " dimensions; give a number for each"));
  std::int64_t tiles = 1;
  for (std::size_t d = 0; d < counts.size(); ++d) {
    if (counts[d] > devices) refuse(str(": ", counts[d], " parts, and the replica has ", devices, " logical devices"));
    if (counts[d] < 1) refuse(str(": ", counts[d], " parts; give 1 for a dimension that is not divided"));
    const auto size = tensor.size(static_cast<std::int64_t>(d));
    if (size % counts[d] != 0) refuse(str(": dimension ", d, " of size ", size, " cannot be divided by ", counts[d]));
    tiles = tiles > devices ? tiles : tiles * counts[d];
  }
  if (tiles != devices)
    refuse(str(": the parts of all dimensions, multiplied, must be the replica's ", devices, " logical devices"));
}

}  // namespace

AssignedDevices assign_devices(const std::vector<LogicalDevice>& devices, const DeviceAssignment& assignment) {
  if (assignment.topology().num_tasks() != 1)
    throw Error(ErrorCode::kInvalidArgument, str("device_assignment is of ", assignment.topology().num_tasks(),
                                                 " tasks; the devices of this strategy are those of one"));
  const auto device_of = [&](int replica, int core) -> const LogicalDevice& {
    const auto ordinal = static_cast<std::size_t>(assignment.device_ordinal(replica, core));
    if (ordinal >= devices.size())
      throw Error(
          ErrorCode::kInvalidArgument,
          str("device_assignment gives device ", ordinal, " to replica ", replica, ", and the strategy has ", devices.size(),
              " devices; name as many as the topology has (", assignment.topology().num_devices_per_task(), ")"));
    return devices[ordinal];
  };
  AssignedDevices assigned;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    split::LogicalDevices home;
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      home.names.push_back(device_of(replica, core).name);
      home.torch_devices.push_back(torch_device(device_of(replica, core)));
    }
    assigned.first.push_back(device_of(replica, 0));
    assigned.all.push_back(std::make_shared<const split::LogicalDevices>(std::move(home)));
  }
  return assigned;
}

int Strategy::replica_here(const char* what) const {
  const auto mode = internal::current_mode();
  if (mode.replicas != nullptr && mode.context != nullptr && mode.replicas == replicas_)
    return mode.context->local_replica_id();
  require_cross_replica_or_default(what);
  if (replicas_->size() == 1) return 0;
  throw Error(ErrorCode::kFailedPrecondition, str(what, "() means the logical devices of one replica, and this process has ",
                                                  replicas_->size(), "; call it inside run()"));
}

at::Tensor Strategy::experimental_assign_to_logical_device(const at::Tensor& tensor, int logical_device_id) const {
  require_dense(tensor, "experimental_assign_to_logical_device");
  const auto replica = replica_here("experimental_assign_to_logical_device");
  return split::assign_to(tensor, replicas_->require_logical_device(replica, logical_device_id), logical_device_id);
}

at::Tensor Strategy::experimental_split_to_logical_devices(const at::Tensor& tensor,
                                                           const std::vector<std::int64_t>& partition_dimensions) const {
  require_dense(tensor, "experimental_split_to_logical_devices");
  const auto& home = replicas_->logical_devices(replica_here("experimental_split_to_logical_devices"));
  require_partition(tensor, partition_dimensions, home->count());
  return split::split_to(tensor, home, partition_dimensions);
}

at::Tensor Strategy::experimental_replicate_to_logical_devices(const at::Tensor& tensor) const {
  require_dense(tensor, "experimental_replicate_to_logical_devices");
  return split::replicate_to(tensor, replicas_->logical_devices(replica_here("experimental_replicate_to_logical_devices")));
}

}  // namespace lockstep
