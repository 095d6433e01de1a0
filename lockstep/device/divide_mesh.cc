#include "lockstep/device/divide_mesh.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/mesh.h"

namespace lockstep::internal {
namespace {

// Note [division of a mesh]
// 1. A replica's cores are a grid of computation_shape, computation_stride apart. Its footprint, the product of the two, is
//    a block of the mesh that as many such grids fill as the stride has room for, each a step beside the other.
// 2. Replicas count along the core first, then x, y, z, in a box of replica_shape(); in each dimension first those that share
//    a block, then the next block. Logical cores count the other way: the core fastest, then z, y, x.
// 3. In rings, where replicas have all cores of their chips, side by side, and are as many as fit: blocks follow one another
//    along a ring of chips, and so do the chips in a block.
// 4. Where devices are missing, grids have holes: replicas take the devices in the order of the tasks.

constexpr std::size_t kCore = 3;
constexpr std::array<std::size_t, 4> kCoreThenX = {3, 0, 1, 2};
constexpr std::array<std::size_t, 4> kCoreThenZ = {3, 2, 1, 0};
constexpr std::array<std::size_t, 4> kX = {0, 1, 2, 3};

using Cores = std::vector<Coordinates>;

struct Division {
  std::vector<int> shape = {};
  std::vector<int> stride = {};
  std::vector<int> most_replicas = {};  // in each dimension
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, str("DeviceAssignment: ", message));
}

int product(const std::vector<int>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 1, std::multiplies<>()); }

std::vector<int> or_ones(const std::vector<int>& given, std::string_view name) {
  if (given.empty()) return std::vector<int>(Topology::kMeshRank, 1);
  if (given.size() != Topology::kMeshRank || std::ranges::any_of(given, [](int number) { return number < 1; }))
    refuse(str(name, " is ", in_brackets(given),
               "; give four numbers of at least 1: x, y, z and cores, or none for [1, 1, 1, 1]"));
  return given;
}

Division division_of(const std::vector<int>& mesh, const DeviceAssignmentOptions& options) {
  Division division{or_ones(options.computation_shape, "computation_shape"),
                    or_ones(options.computation_stride, "computation_stride")};
  for (std::size_t d = 0; d < mesh.size(); ++d) {
    const auto footprint = std::int64_t{division.shape[d]} * division.stride[d];
    if (footprint > mesh[d])
      refuse(str("computation_shape ", in_brackets(division.shape), " with computation_stride ", in_brackets(division.stride),
                 " goes over ", footprint, " of dimension ", d, ", which does not fit in a mesh of ", in_brackets(mesh),
                 "; give a smaller shape or stride"));
    division.most_replicas.push_back(mesh[d] / static_cast<int>(footprint) * division.stride[d]);
  }
  if (options.num_replicas < 1) refuse(str("num_replicas is ", options.num_replicas, "; give at least 1"));
  if (options.num_replicas > product(division.most_replicas))
    refuse(str("num_replicas is ", options.num_replicas, ", but only ", product(division.most_replicas),
               " replicas with computation_shape ", in_brackets(division.shape), " and computation_stride ",
               in_brackets(division.stride), " fit in a mesh of ", in_brackets(mesh),
               "; give fewer replicas, or a smaller shape"));
  return division;
}

bool can_be_in_rings(const Topology& topology, const Division& division, int num_replicas) {
  return division.shape[kCore] == topology.mesh_shape()[kCore] && product(division.stride) == 1 &&
         num_replicas == product(division.most_replicas) && !topology.has_missing_devices();
}

std::vector<Cores> in_rings(const Division& division) {
  const auto chips = ring(division.shape);
  std::vector<Cores> replicas;
  for (const auto& block : ring(division.most_replicas)) {
    auto& cores = replicas.emplace_back();
    for (const auto& chip : chips) {
      Coordinates coordinates(kCore + 1);
      for (std::size_t d = 0; d < kCore; ++d) coordinates[d] = block[d] * division.shape[d] + chip[d];
      for (coordinates[kCore] = 0; coordinates[kCore] < division.shape[kCore]; ++coordinates[kCore])
        cores.push_back(coordinates);
    }
  }
  return replicas;
}

std::vector<Cores> in_rows(const Division& division, int num_replicas) {
  const auto& [shape, stride, most_replicas] = division;
  const auto box = replica_shape(most_replicas, num_replicas);
  std::vector<Cores> replicas;
  for (int replica = 0; replica < num_replicas; ++replica) {
    const auto position = cell(replica, box, kCoreThenX);
    auto& cores = replicas.emplace_back();
    for (int core = 0; core < product(shape); ++core) {
      auto coordinates = cell(core, shape, kCoreThenZ);
      for (std::size_t d = 0; d < coordinates.size(); ++d)
        coordinates[d] = coordinates[d] * stride[d] + position[d] / stride[d] * shape[d] * stride[d] + position[d] % stride[d];
      cores.push_back(std::move(coordinates));
    }
  }
  return replicas;
}

std::vector<Cores> in_order_of_tasks(const Topology& topology, const Division& division, int num_replicas) {
  const auto cores_per_replica = static_cast<std::size_t>(product(division.shape));
  const auto per_task = static_cast<std::size_t>(topology.num_devices_per_task());
  const auto devices = static_cast<std::size_t>(topology.num_tasks()) * per_task;
  if (product(division.stride) != 1)
    refuse(str("computation_stride is ", in_brackets(division.stride), " in a mesh with missing devices; there, give none"));
  if (cores_per_replica * static_cast<std::size_t>(num_replicas) > devices)
    refuse(str(num_replicas, " replicas with ", cores_per_replica, " devices each do not fit in a mesh with only ", devices,
               " devices, the others missing; give fewer replicas, or a smaller computation_shape"));
  std::vector<Cores> replicas(static_cast<std::size_t>(num_replicas));
  std::size_t device = 0;
  for (auto& cores : replicas)
    for (; cores.size() < cores_per_replica; ++device)
      cores.push_back(topology.device_coordinates()[device / per_task][device % per_task]);
  return replicas;
}

// `path` in each of many layers, there and back in turn, but for its first cell: along those of all layers the way leads home.
Cores coil(const Cores& path, std::size_t dimension, int layers) {
  Cores way;
  const auto add = [&](Coordinates cell, int layer) {
    cell[dimension] = layer;
    way.push_back(std::move(cell));
  };
  add(path.front(), 0);
  for (int layer = 0; layer < layers; ++layer)
    for (std::size_t i = 1; i < path.size(); ++i) add(path[layer % 2 == 0 ? i : path.size() - i], layer);
  for (int layer = layers - 1; layer > 0; --layer) add(path.front(), layer);
  return way;
}

}  // namespace

std::vector<Cores> divide_mesh(const Topology& topology, const DeviceAssignmentOptions& options) {
  const auto& mesh = topology.mesh_shape();
  const auto division = division_of(mesh, options);
  const bool rings = can_be_in_rings(topology, division, options.num_replicas);
  if (options.device_order_mode == DeviceOrderMode::kRing && !rings)
    refuse(str(options.num_replicas, " replicas with computation_shape ", in_brackets(division.shape),
               " and computation_stride ", in_brackets(division.stride), " cannot be in rings in a mesh of ", in_brackets(mesh),
               "; give all cores of a chip to one replica, no stride, and as many replicas as fit (",
               product(division.most_replicas), "), in a mesh without missing devices, or take DeviceOrderMode::kAuto"));
  if (topology.has_missing_devices()) return in_order_of_tasks(topology, division, options.num_replicas);
  if (rings && options.device_order_mode != DeviceOrderMode::kMesh) return in_rings(division);
  return in_rows(division, options.num_replicas);
}

std::vector<int> replica_shape(const std::vector<int>& most, int num_replicas) {
  auto order = kCoreThenX;
  std::ranges::stable_sort(order, {}, [&](std::size_t d) { return most[d]; });
  std::vector<int> shape(order.size());
  int remaining = num_replicas;
  int dimensions = static_cast<int>(order.size());
  for (const auto d : order) {
    // The smallest that is enough, were all remaining dimensions the same.
    int side = 1;
    const auto is_enough = [&] {
      std::int64_t volume = 1;
      for (int i = 0; i < dimensions && volume < remaining; ++i) volume *= side;
      return volume >= remaining;
    };
    while (side < most[d] && !is_enough()) ++side;
    shape[d] = side;
    remaining = (remaining + side - 1) / side;
    --dimensions;
  }
  return shape;
}

std::vector<Coordinates> ring(const std::vector<int>& box) {
  std::vector<std::size_t> wide;
  bool is_odd = false;
  for (std::size_t d = 0; d < kCore; ++d) {
    if (box[d] > 1) wide.push_back(d);
    is_odd |= box[d] > 1 && box[d] % 2 != 0;
  }
  if (is_odd || wide.size() < 2) {
    const std::vector<int> chips = {box[0], box[1], box[2], 1};
    Cores raster;
    for (int chip = 0; chip < product(chips); ++chip) raster.push_back(cell(chip, chips, kX));
    return raster;
  }
  Cores path(1, Coordinates(kCore + 1));
  for (int step = 1; step < box[wide[0]]; ++step) path.emplace_back(path.front())[wide[0]] = step;
  for (std::size_t i = 1; i < wide.size(); ++i) path = coil(path, wide[i], box[wide[i]]);
  return path;
}

}  // namespace lockstep::internal
