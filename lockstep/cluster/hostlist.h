#pragma once

#include <string>
#include <vector>

// The two list notations of Slurm's environment.

namespace lockstep {

// "n[1-2],m5,o[009-011]" -> n1 n2 m5 o009 o010 o011. Throws kInvalidArgument with the place.
std::vector<std::string> expand_hostlist(const std::string& hostlist);

// "3(x2),2" -> 3 3 2. Throws kInvalidArgument.
std::vector<int> expand_tasks_per_node(const std::string& tasks);

}  // namespace lockstep
