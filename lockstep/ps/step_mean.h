#pragma once

#include <utility>
#include <vector>

#include "lockstep/ps/store_messages.h"
#include "lockstep/ps/stored_variable.h"

namespace lockstep::ps {

using GivenOperation = std::pair<Operation, Given>;

// One update of the means of several contributions, in their order: see HeldGradients. Each has gradients (kGradient,
// kGradientRows) and values (kAssign), which must fit their variables. The result's memory is its own.
std::vector<GivenOperation> mean_of(const std::vector<const std::vector<GivenOperation>*>& contributions);

}  // namespace lockstep::ps
