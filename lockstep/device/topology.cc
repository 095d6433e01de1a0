#include "lockstep/device/topology.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/mesh.h"
#include "lockstep/device/topology_bytes.h"

namespace lockstep {
namespace {

using internal::in_brackets;

constexpr int kNoDevice = -1;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, str("Topology: ", message)); }

// How many places a mesh has.
int places_of(const std::vector<int>& mesh_shape) {
  if (mesh_shape.size() != Topology::kMeshRank || std::ranges::any_of(mesh_shape, [](int size) { return size < 1; }))
    refuse(str("mesh_shape is ", in_brackets(mesh_shape), "; give four numbers of at least 1: x, y, z and cores per chip"));
  std::int64_t places = 1;
  for (const int size : mesh_shape) {
    places *= size;
    if (places > Topology::kMostPlaces)
      refuse(str("mesh_shape is ", in_brackets(mesh_shape), "; a mesh has at most ", Topology::kMostPlaces, " places"));
  }
  return static_cast<int>(places);
}

// Where in the list of all places, x slowest; nothing outside the mesh.
std::optional<std::size_t> place_of(const Coordinates& coordinates, const std::vector<int>& mesh_shape) {
  if (coordinates.size() != mesh_shape.size()) return std::nullopt;
  std::size_t place = 0;
  for (std::size_t d = 0; d < mesh_shape.size(); ++d) {
    if (coordinates[d] < 0 || coordinates[d] >= mesh_shape[d]) return std::nullopt;
    place = place * static_cast<std::size_t>(mesh_shape[d]) + static_cast<std::size_t>(coordinates[d]);
  }
  return place;
}

}  // namespace

Topology::Topology(const TopologyOptions& options) {
  auto given = options.serialized.empty() ? options : internal::read_topology(options.serialized);
  mesh_shape_ = std::move(given.mesh_shape);
  device_coordinates_ = std::move(given.device_coordinates);
  place_devices();
}

void Topology::place_devices() {
  devices_.assign(static_cast<std::size_t>(places_of(mesh_shape_)), kNoDevice);
  if (device_coordinates_.empty() || device_coordinates_.front().empty())
    refuse("device_coordinates are of no device; give for each task, for each of its devices, four numbers: x, y, z and core");
  int device = 0;
  for (std::size_t task = 0; task < device_coordinates_.size(); ++task) {
    const auto& devices = device_coordinates_[task];
    if (devices.size() != device_coordinates_.front().size())
      refuse(str("device_coordinates has ", devices.size(), " devices of task ", task, ", and ",
                 device_coordinates_.front().size(), " of task 0; give all tasks equally many"));
    for (const auto& coordinates : devices) {
      const auto place = place_of(coordinates, mesh_shape_);
      if (!place)
        refuse(str("device_coordinates has ", in_brackets(coordinates), " in task ", task,
                   "; give four numbers, from 0 up to but not including mesh_shape ", in_brackets(mesh_shape_)));
      if (devices_[*place] != kNoDevice)
        refuse(str("device_coordinates has ", in_brackets(coordinates), " twice, the second time in task ", task,
                   "; give each device a place of its own"));
      devices_[*place] = device++;
    }
  }
}

Topology Topology::from_serialized(std::string_view bytes) { return Topology(internal::read_topology(bytes)); }

Topology Topology::of_devices(int count, int cores_per_chip) {
  if (count < 1 || cores_per_chip < 1 || count % cores_per_chip != 0)
    refuse(str(count, " devices with ", cores_per_chip,
               " cores per chip; give at least one device, and a number of cores that divides the number of devices"));
  std::vector<int> mesh_shape = {count / cores_per_chip, 1, 1, cores_per_chip};
  places_of(mesh_shape);  // before there are as many coordinates
  std::vector<Coordinates> devices;
  for (int device = 0; device < count; ++device) devices.push_back({device / cores_per_chip, 0, 0, device % cores_per_chip});
  return Topology({.mesh_shape = std::move(mesh_shape), .device_coordinates = {std::move(devices)}});
}

std::vector<Coordinates> Topology::missing_devices() const {
  std::vector<Coordinates> missing;
  for (std::size_t place = 0; place < devices_.size(); ++place)
    if (devices_[place] == kNoDevice) missing.push_back(internal::cell(static_cast<int>(place), mesh_shape_, {3, 2, 1, 0}));
  return missing;
}

bool Topology::has_missing_devices() const noexcept { return std::ranges::count(devices_, kNoDevice) > 0; }

bool Topology::has_device_at(const Coordinates& coordinates) const noexcept {
  const auto place = place_of(coordinates, mesh_shape_);
  return place && devices_[*place] != kNoDevice;
}

int Topology::device_at(const Coordinates& coordinates) const {
  if (coordinates.size() != mesh_shape_.size())
    refuse(str("coordinates ", in_brackets(coordinates), "; give four numbers: x, y, z and core"));
  const auto place = place_of(coordinates, mesh_shape_);
  if (!place)
    throw Error(ErrorCode::kOutOfRange, str("Topology: ", in_brackets(coordinates), " is outside the mesh of ",
                                            in_brackets(mesh_shape_), "; coordinates are counted from 0"));
  if (devices_[*place] == kNoDevice)
    throw Error(ErrorCode::kNotFound, str("Topology: no device is at ", in_brackets(coordinates),
                                          "; missing_devices() lists the places without one"));
  return devices_[*place];
}

int Topology::task_ordinal_at_coordinates(const Coordinates& coordinates) const {
  return device_at(coordinates) / num_devices_per_task();
}

int Topology::device_ordinal_at_coordinates(const Coordinates& coordinates) const {
  return device_at(coordinates) % num_devices_per_task();
}

int Topology::tpu_device_ordinal_at_coordinates(const Coordinates& coordinates) const {
  return device_ordinal_at_coordinates(coordinates);
}

std::string Topology::cpu_device_name_at_coordinates(const Coordinates& coordinates, const std::string& job) const {
  DeviceSpec name{.task = task_ordinal_at_coordinates(coordinates), .device_type = "CPU", .device_index = 0};
  if (!job.empty()) name.job = job;
  return name.to_string();
}

std::string Topology::tpu_device_name_at_coordinates(const Coordinates& coordinates, const std::string& job) const {
  DeviceSpec name{.task = task_ordinal_at_coordinates(coordinates),
                  .device_type = "TPU",
                  .device_index = device_ordinal_at_coordinates(coordinates)};
  if (!job.empty()) name.job = job;
  return name.to_string();
}

std::string Topology::serialized() const { return internal::write_topology(*this); }

}  // namespace lockstep
