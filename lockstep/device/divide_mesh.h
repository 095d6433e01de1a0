#pragma once

#include <vector>

#include "lockstep/device/device_assignment.h"

namespace lockstep::internal {

// For each replica, for each of its logical cores, where its device is. Throws as DeviceAssignment::build() does.
std::vector<std::vector<Coordinates>> divide_mesh(const Topology& topology, const DeviceAssignmentOptions& options);

// How many replicas are side by side in each dimension, when as many as `most` could be: as much of a cube as can be had. Their
// product is at least `num_replicas`, which is at most that of `most`.
std::vector<int> replica_shape(const std::vector<int>& most, int num_replicas);

// The chips of a box [x, y, z, ...], with 0 for a core, each beside the one before it and the last beside the first. A line is
// taken from end to end. With an odd number of them above 1 in a dimension: row by row, x fastest.
std::vector<Coordinates> ring(const std::vector<int>& box);

}  // namespace lockstep::internal
