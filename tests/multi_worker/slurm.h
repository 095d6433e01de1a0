#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/multi_worker/cluster.h"

namespace lockstep::testing {

// A real Slurm of one node, this machine: its controller and its node's daemon, on free ports of the loopback, with all
// their files in a folder that goes away with this object.
class Slurm {
 public:
  Slurm();  // throws when the daemons do not answer
  ~Slurm();

  // `command` under srun with so many tasks. `options` come before the program.
  Command srun(int tasks, Command command, const std::vector<std::string>& options = {}) const;

 private:
  Variables variables() const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Process>> daemons_;
};

}  // namespace lockstep::testing
