#pragma once

#include <map>
#include <string>

#include "lockstep/compat/v1/mirrored_strategy.h"
#include "tests/oracle_runner/case.h"

// The first version's MirroredStrategy, and the part of its cases that is about input.

namespace lockstep::oracle {

// The strategy of CPU:0 .. CPU:replicas-1, one object for each count.
compat::v1::MirroredStrategy& first_version(const Case& one);

const std::map<std::string, Json (*)(const Case&)>& v1_input_apis();

// Steps of parts (each a tensor, or a list or dict of tensors) with every step's rows cut by our rule A4.
Json balanced_steps(const Json& steps);

}  // namespace lockstep::oracle
