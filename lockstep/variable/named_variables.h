#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/variable/variable.h"

namespace lockstep {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

}  // namespace lockstep
