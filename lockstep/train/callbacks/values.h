#pragma once

#include <string>

#include "lockstep/checkpoint/trackable.h"

// Numbers among what a callback remembers.

namespace lockstep::internal {

// Every bit is kept.
void put(CheckpointPart& part, const std::string& name, double value);
// Throws kDataLoss when it is not there, or no number.
double get(const CheckpointPart& part, const std::string& name);

}  // namespace lockstep::internal
