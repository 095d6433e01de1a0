#include "lockstep/device/device_assignment.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/divide_mesh.h"
#include "lockstep/device/mesh.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, str("DeviceAssignment: ", message));
}

}  // namespace

DeviceAssignment::DeviceAssignment(Topology topology, std::vector<std::vector<Coordinates>> core_assignment)
    : topology_(std::move(topology)), core_assignment_(std::move(core_assignment)) {
  if (core_assignment_.empty() || core_assignment_.front().empty())
    refuse("core_assignment has no device; give for each replica, for each of its cores, four numbers: x, y, z and core");
  const auto per_task = topology_.num_devices_per_task();
  std::vector<bool> is_taken(static_cast<std::size_t>(topology_.num_tasks() * per_task));
  for (std::size_t replica = 0; replica < core_assignment_.size(); ++replica) {
    const auto& cores = core_assignment_[replica];
    if (cores.size() != core_assignment_.front().size())
      refuse(str("core_assignment has ", cores.size(), " cores for replica ", replica, ", and ",
                 core_assignment_.front().size(), " for replica 0; give all replicas equally many"));
    for (std::size_t core = 0; core < cores.size(); ++core) {
      const auto refuse_it = [&](const std::string& why) {
        refuse(
            str("core_assignment has ", internal::in_brackets(cores[core]), " for core ", core, " of replica ", replica, why));
      };
      if (cores[core].size() != Topology::kMeshRank) refuse_it("; give four numbers: x, y, z and core");
      if (!topology_.has_device_at(cores[core]))
        refuse_it(str(", where there is no device; give coordinates of a device of the topology, whose mesh is ",
                      internal::in_brackets(topology_.mesh_shape())));
      const auto device =
          topology_.task_ordinal_at_coordinates(cores[core]) * per_task + topology_.device_ordinal_at_coordinates(cores[core]);
      if (is_taken[static_cast<std::size_t>(device)]) refuse_it(", which was given before; give each device once");
      is_taken[static_cast<std::size_t>(device)] = true;
    }
  }
}

DeviceAssignment DeviceAssignment::build(const Topology& topology, const DeviceAssignmentOptions& options) {
  return {topology, internal::divide_mesh(topology, options)};
}

DeviceAssignment DeviceAssignment::build(std::string_view topology, const DeviceAssignmentOptions& options) {
  return build(Topology::from_serialized(topology), options);
}

const Coordinates& DeviceAssignment::coordinates(int replica, int logical_core) const {
  if (replica < 0 || replica >= num_replicas() || logical_core < 0 || logical_core >= num_cores_per_replica())
    throw Error(ErrorCode::kOutOfRange,
                str("DeviceAssignment: there is no logical core ", logical_core, " of replica ", replica, "; there are ",
                    num_replicas(), " replicas with ", num_cores_per_replica(), " logical cores each, counted from 0"));
  return core_assignment_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(logical_core)];
}

int DeviceAssignment::device_ordinal(int replica, int logical_core) const {
  return topology_.device_ordinal_at_coordinates(coordinates(replica, logical_core));
}

int DeviceAssignment::tpu_ordinal(int replica, int logical_core) const { return device_ordinal(replica, logical_core); }

std::string DeviceAssignment::host_device(int replica, int logical_core, const std::string& job) const {
  return topology_.cpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::string DeviceAssignment::tpu_device(int replica, int logical_core, const std::string& job) const {
  return topology_.tpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::vector<int> DeviceAssignment::lookup_replicas(int task_id, int logical_core) const {
  std::vector<int> replicas;
  const bool has_core = logical_core >= 0 && logical_core < num_cores_per_replica();
  for (int replica = 0; has_core && replica < num_replicas(); ++replica)
    if (topology_.task_ordinal_at_coordinates(coordinates(replica, logical_core)) == task_id) replicas.push_back(replica);
  if (replicas.empty())
    refuse(str("no replica has its logical core ", logical_core, " in task ", task_id, "; there are ", topology_.num_tasks(),
               " tasks and ", num_cores_per_replica(), " logical cores per replica, counted from 0"));
  return replicas;
}

}  // namespace lockstep
