#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A place in a mesh of devices: x, y and z of a chip, and a core of it.
using Coordinates = std::vector<int>;

struct TopologyOptions {
  // What serialized() returned. When it is given, the other fields are not looked at.
  std::string serialized = "";
  // How far the mesh goes: x, y, z and cores per chip, all at least 1.
  std::vector<int> mesh_shape = {};
  // For each task, for each of its devices: where it is. All tasks have equally many.
  std::vector<std::vector<Coordinates>> device_coordinates = {};
};

// Where the devices of a cluster are in a mesh, and which task has them. A DeviceAssignment divides them among replicas.
// Does not change; may be used from any thread.
//
//   auto topology = Topology::of_devices(8, 2);   // one machine, eight devices, in pairs: a mesh of [4, 1, 1, 2]
class Topology {
 public:
  // A mesh has this many dimensions, and at most this many places.
  static constexpr int kMeshRank = 4;
  static constexpr int kMostPlaces = 1 << 20;

  // Throws kInvalidArgument for a mesh_shape that is not four numbers of at least 1; for coordinates that are not four numbers
  // in the mesh, or given twice; without devices, or with another number in one task than in the others.
  explicit Topology(const TopologyOptions& options);

  // The topology that the bytes were made of. Throws kInvalidArgument when they are damaged, or something else.
  static Topology from_serialized(std::string_view bytes);

  // One task with `count` devices, in a mesh of [count / cores_per_chip, 1, 1, cores_per_chip]. A device's ordinal is its index
  // in a list of them. Throws kInvalidArgument unless there is a device, and `cores_per_chip` divides their number.
  static Topology of_devices(int count, int cores_per_chip = 1);

  const std::vector<int>& mesh_shape() const noexcept { return mesh_shape_; }
  int mesh_rank() const noexcept { return kMeshRank; }
  // For each task, for each of its devices.
  const std::vector<std::vector<Coordinates>>& device_coordinates() const noexcept { return device_coordinates_; }
  // The places of the mesh without a device: x slowest, core fastest.
  std::vector<Coordinates> missing_devices() const;
  bool has_missing_devices() const noexcept;

  int num_tasks() const noexcept { return static_cast<int>(device_coordinates_.size()); }
  int num_devices_per_task() const noexcept { return static_cast<int>(device_coordinates_.front().size()); }
  int num_tpus_per_task() const noexcept { return num_devices_per_task(); }

  // Also false for what is not in the mesh.
  bool has_device_at(const Coordinates& coordinates) const noexcept;

  // These throw kInvalidArgument for coordinates that are not four numbers, kOutOfRange outside the mesh, kNotFound where no
  // device is.
  int task_ordinal_at_coordinates(const Coordinates& coordinates) const;
  // Its number in its task.
  int device_ordinal_at_coordinates(const Coordinates& coordinates) const;
  int tpu_device_ordinal_at_coordinates(const Coordinates& coordinates) const;
  // "/job:worker/task:1/device:CPU:0": the CPU of the device's task. Without a job, the name has none.
  std::string cpu_device_name_at_coordinates(const Coordinates& coordinates, const std::string& job = "") const;
  // "/job:worker/task:1/device:TPU:3"
  std::string tpu_device_name_at_coordinates(const Coordinates& coordinates, const std::string& job = "") const;

  // A few bytes for each device, for another process or a file.
  std::string serialized() const;

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  void place_devices();
  int device_at(const Coordinates& coordinates) const;

  // Const after construction.
  std::vector<int> mesh_shape_;
  std::vector<std::vector<Coordinates>> device_coordinates_;
  std::vector<int> devices_;  // for each place: task * num_devices_per_task() + device, or kNoDevice
};

}  // namespace lockstep
