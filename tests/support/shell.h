#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace lockstep::testing {

struct Result {
  int exit_code = -1;
  std::string output;
};

// Runs a command in a shell.
inline Result shell(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (const auto count = std::fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, count);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace lockstep::testing
