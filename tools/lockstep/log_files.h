#pragma once

#include <string>

#include "lockstep/cluster/cluster_spec.h"

namespace lockstep::tool {

// Makes the folder, if one is named. Throws kInvalidArgument when it cannot.
void make_log_dir(const std::string& path);

// "<folder>/worker_2.attempt_0.log"; empty without a folder.
std::string log_file(const std::string& folder, const Task& task, int attempt);

}  // namespace lockstep::tool
