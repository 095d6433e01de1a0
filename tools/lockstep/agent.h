#pragma once

#include <string>
#include <vector>

#include "tools/lockstep/link.h"

namespace lockstep::tool {

// What a node brings itself, in place of what the launcher says, when it was not started by the launcher.
struct OwnWork {
  std::vector<std::string> command = {};
  std::string log_dir = "";  // empty: no files
};

// Serves the launcher at the other end of `link` until it says good-bye, and returns the exit status that it names.
// When the launcher is gone, or a signal asks for the end, the tasks are ended, and the answer is 1. With `own`, output is
// shown here; without, it goes to the launcher.
int serve_launcher(Link& link, const OwnWork* own);

// `lockstep agent`: serves the launcher at standard input and output.
int run_agent(std::chrono::nanoseconds lost_after);

}  // namespace lockstep::tool
