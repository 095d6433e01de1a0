#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/lockstep/plan.h"

namespace lockstep::tool {

struct RunOptions {
  JobShape shape = {};
  std::vector<std::string> command = {};
  std::string log_dir = "";  // empty: no files
  int max_restarts = 0;
  std::chrono::milliseconds grace = std::chrono::seconds(5);  // from the first request to end to the last one
};

// Starts every task of a job, passes its output on, and waits. When one fails, the others are ended, what failed first is
// shown, and all are started again, as often as allowed. SIGINT, SIGTERM and SIGHUP are passed on. Returns 0 when all that
// train ended well, else 1. Throws kInvalidArgument, and kNotFound for a program that cannot be started.
int run_job(const RunOptions& options);

}  // namespace lockstep::tool
