#pragma once

#include <string>

#include "lockstep/train/logs.h"

namespace lockstep::internal {

// The pattern with every {name} and {name:spec} replaced by that value of the logs: "w-{epoch:02d}-{val_loss:.3f}". The spec is
// as Python's: a width with or without leading zeros and d for whole numbers, .nf, .ne or .ng for others. Throws
// kInvalidArgument for a name that is not there, or a spec that is none.
std::string file_name(const std::string& pattern, const Logs& values);
// Throws as file_name() does for its specs, before there are values.
void require_formats(const std::string& pattern);

}  // namespace lockstep::internal
