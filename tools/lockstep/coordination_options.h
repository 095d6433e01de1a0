#pragma once

#include <chrono>

#include "lockstep/cluster/coordination.h"

namespace lockstep::tool {

// The secret and the certificates that the environment names.
CoordinationOptions coordination_options(std::chrono::nanoseconds join_timeout);

}  // namespace lockstep::tool
