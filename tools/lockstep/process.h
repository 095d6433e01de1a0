#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/exit_codes.h"

namespace lockstep::tool {

// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;
  std::string lost = "";  // why nobody knows: its machine cannot be reached any more

  bool is_good() const { return exit_code == 0 && signal == 0 && lost.empty(); }
  // It was told to go, and has saved.
  bool is_preempted() const { return exit_code == kPreemptedExitCode && signal == 0 && lost.empty(); }
};

// "exit code 3", "signal 9 (Killed)"
std::string describe(const Ending& ending);

using Variables = std::map<std::string, std::string>;

// A started program. It leads a group of its own, so that its own children can be reached too, and the whole group is
// killed when this process dies, in whatever way (guard.h).
class Process {
 public:
  // What the program gets as its standard streams. The caller keeps its descriptors.
  struct Streams {
    int input;
    int output;
    int error;
  };

  // `variables` come on top of this process's own. Throws kNotFound when the program cannot be started.
  Process(const std::vector<std::string>& command, const Variables& variables, const Streams& streams);
  ~Process();  // kills the whole group
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Looks whether it has ended; the answer stays.
  const std::optional<Ending>& ending();
  // To the whole group.
  void send(int signal) const noexcept;

 private:
  pid_t pid_ = -1;
  std::optional<Ending> ending_;
};

// Both ends of a pipe that is not passed on to programs. Closed with their owner, or one by one. Throws kUnavailable.
class Pipe {
 public:
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const noexcept { return ends_[0]; }
  int write_end() const noexcept { return ends_[1]; }
  void close_read_end() noexcept { close_end(0); }
  void close_write_end() noexcept { close_end(1); }

 private:
  void close_end(int which) noexcept;

  int ends_[2] = {-1, -1};
};

void make_nonblocking(int descriptor) noexcept;

}  // namespace lockstep::tool
