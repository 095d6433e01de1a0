#pragma once

#include <ATen/ATen.h>

#include <string>

#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "lockstep/variable/variable.h"

namespace lockstep::oracle {

// The strategy of CPU:0 .. CPU:replicas-1, one object for each count, as the oracle's generator had it.
MirroredStrategy& mirrored(int replicas);

// "ON_READ", "ONLY_FIRST_REPLICA" and so on. Throw std::invalid_argument for another name.
VariableSynchronization to_synchronization(const std::string& name);
VariableAggregation to_aggregation(const std::string& name);

}  // namespace lockstep::oracle
