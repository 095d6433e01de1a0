#pragma once

#include <sys/types.h>

#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_spec.h"

namespace lockstep::tool {

// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;

  bool is_good() const { return exit_code == 0 && signal == 0; }
};

// "exit code 3", "signal 9 (Killed)"
std::string describe(const Ending& ending);

// A started task. Its output comes through one pipe, is passed on line by line with "[worker 2] " before each, and its
// last lines are kept. The process leads a group of its own, so that its own children can be reached too.
class Child {
 public:
  // Throws kNotFound when the program cannot be started. `log` may be empty.
  Child(Task task, const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
        const std::string& log_file);
  ~Child();  // ends the whole group
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const Task& task() const noexcept { return task_; }
  int output() const noexcept { return output_; }  // -1: closed
  bool has_ended() const noexcept { return has_ended_; }
  const Ending& ending() const noexcept { return ending_; }
  const std::deque<std::string>& last_lines() const noexcept { return last_lines_; }

  // Passes on some of what the process has written. Never blocks, and comes back from one that never stops writing.
  void forward_output() { forward_output(kReadsAtOnce); }
  // True when the process has just ended.
  bool check_ended();
  // To the whole group.
  void send(int signal) const noexcept;

 private:
  static constexpr int kReadsAtOnce = 4;

  void forward_output(int reads);
  void take(const char* text, std::size_t bytes);
  void finish_line(char end);

  const Task task_;
  const std::string prefix_;
  pid_t pid_ = -1;
  int output_ = -1;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_;
  std::string line_;
  std::deque<std::string> last_lines_;
  bool has_ended_ = false;
  Ending ending_;
};

}  // namespace lockstep::tool
