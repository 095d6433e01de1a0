#pragma once

#include "tools/lockstep/run_options.h"

namespace lockstep::tool {

// Starts every task of a job, passes its output on, and waits. When one fails, the others are ended, what failed first is
// shown, and all are started again, as often as allowed; with parameter servers and a chief single tasks are (Note [jobs with
// parameter servers]). SIGINT, SIGTERM and SIGHUP are passed on. Returns 0 when all that train ended well, 42 when they have
// saved because they were told to go, else 1. Throws kInvalidArgument, kNotFound for a program that cannot be started,
// kUnavailable for a machine that cannot be reached.
int run_job(const RunOptions& options);

}  // namespace lockstep::tool
