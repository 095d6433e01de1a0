#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tools/lockstep/findings.h"

// What a task finds on its own machine.

namespace lockstep::tool {

// What it tells the others about it.
struct MachineFacts {
  std::string key = "";     // machine_key(): who can share memory with whom
  std::string boot = "";    // equal on one machine, also in different containers
  std::set<int> cpus = {};  // that the task may use
  double quota = 0;         // cores that its control group may use; 0: no limit
};

MachineFacts look_at_machine();

// memfd_create works, /dev/shm has room, enough files may be open for so many tasks.
std::vector<Finding> check_machine(const std::string& who, std::size_t tasks);

// Whether the machine of the first of `facts` (one for each of its tasks) has a core for each.
Finding check_cores(const std::string& host, const std::vector<MachineFacts>& facts);

}  // namespace lockstep::tool
