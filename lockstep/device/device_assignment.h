#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/topology.h"

namespace lockstep {

// How replicas, and the logical devices of each, follow one another in the mesh.
enum class DeviceOrderMode {
  kAuto,  // in rings where that is possible
  kRing,  // in rings, or not at all
  kMesh,  // row by row
};

struct DeviceAssignmentOptions {
  // What one replica has of the mesh: x, y, z and cores. Empty: one core.
  std::vector<int> computation_shape = {};
  // How far apart the devices of one replica are; other replicas have those between. Empty: side by side.
  std::vector<int> computation_stride = {};
  int num_replicas = 1;
  DeviceOrderMode device_order_mode = DeviceOrderMode::kAuto;
};

// Which devices of a topology each replica has, in the order of its logical devices (its cores).
// Does not change; may be used from any thread.
//
//   auto topology = Topology::of_devices(8, 2);
//   auto assignment = DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
//   assignment.device_ordinal(3, 1);   // 7
class DeviceAssignment {
 public:
  // `core_assignment`: for each replica, for each of its logical cores, where the device is. Throws kInvalidArgument unless
  // each replica has equally many, at least one, each with four coordinates, at which there is a device that no other has.
  DeviceAssignment(Topology topology, std::vector<std::vector<Coordinates>> core_assignment);

  // Divides the topology: Note [division of a mesh]. Throws kInvalidArgument for numbers below 1, and for what does not fit.
  static DeviceAssignment build(const Topology& topology, const DeviceAssignmentOptions& options = {});
  // Of a topology's serialized() bytes.
  static DeviceAssignment build(std::string_view topology, const DeviceAssignmentOptions& options = {});

  const Topology& topology() const noexcept { return topology_; }
  const std::vector<std::vector<Coordinates>>& core_assignment() const noexcept { return core_assignment_; }
  int num_replicas() const noexcept { return static_cast<int>(core_assignment_.size()); }
  int num_cores_per_replica() const noexcept { return static_cast<int>(core_assignment_.front().size()); }

  // These throw kOutOfRange for a replica or a core that is not there.
  const Coordinates& coordinates(int replica, int logical_core) const;
  // The device's number in its task.
  int device_ordinal(int replica = 0, int logical_core = 0) const;
  int tpu_ordinal(int replica = 0, int logical_core = 0) const;
  // "/job:worker/task:1/device:CPU:0": the CPU of the device's task. Without a job, the name has none.
  std::string host_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;
  // "/job:worker/task:1/device:TPU:3"
  std::string tpu_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;

  // The replicas whose logical core `logical_core` is a device of that task, in rising order. Throws kInvalidArgument when
  // there are none.
  std::vector<int> lookup_replicas(int task_id, int logical_core) const;

  friend bool operator==(const DeviceAssignment&, const DeviceAssignment&) = default;

 private:
  // Const after construction.
  Topology topology_;
  std::vector<std::vector<Coordinates>> core_assignment_;
};

}  // namespace lockstep
