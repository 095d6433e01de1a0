#pragma once

#include <string>
#include <vector>

#include "lockstep/train/losses/loss.h"

namespace lockstep::losses {

// The loss of that name, with its default arguments. Throws kInvalidArgument for a name that does not exist.
Loss loss_by_name(const std::string& name);

// All names, in order.
std::vector<std::string> loss_names();

}  // namespace lockstep::losses
