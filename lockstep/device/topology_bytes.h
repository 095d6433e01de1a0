#pragma once

#include <string>
#include <string_view>

#include "lockstep/device/topology.h"

namespace lockstep::internal {

// Note [bytes of a topology]
// 1. "LTop0001"; another name when the bytes mean something else.
// 2. Numbers: the mesh's four, the tasks, the devices of each, then the four coordinates of each device, task by task.
//    A number is its groups of seven bits, the lowest first, each in a byte whose highest bit says that another one follows.
// 3. A sum over all of that, eight bytes, the lowest first.

std::string write_topology(const Topology& topology);

// Throws kInvalidArgument for bytes that were not written so. Takes no more memory than they can describe. What the numbers
// mean is not looked at: Topology's constructor does.
TopologyOptions read_topology(std::string_view bytes);

}  // namespace lockstep::internal
