#pragma once

#include "lockstep/strategy/strategy.h"

namespace lockstep {

// What is current outside every scope: one replica, nothing distributed. There is exactly one; its scope() leaves the
// context as it is, and its run() calls the function on the spot.
Strategy& default_strategy();

}  // namespace lockstep
