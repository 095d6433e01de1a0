#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/process.h"

namespace lockstep::tool {

// A started task: its process, and the one pipe through which both of its output streams come.
class Child {
 public:
  using Sink = std::function<void(std::string_view bytes)>;

  // Throws kNotFound when the program cannot be started. `sink` gets all that the task writes.
  Child(const std::vector<std::string>& command, const Variables& variables, Sink sink);

  int output() const noexcept { return pipe_.read_end(); }  // -1: closed
  bool has_ended() const noexcept { return has_ended_; }
  // Valid once it has ended.
  const Ending& ending() { return *process_.ending(); }

  // Passes on some of what the process has written. Never blocks, and comes back from one that never stops writing.
  void forward_output() { forward_output(kReadsAtOnce); }
  // True when the process has just ended; what it wrote until then has been passed on.
  bool check_ended();
  // To the whole group.
  void send(int signal) const noexcept { process_.send(signal); }

 private:
  static constexpr int kReadsAtOnce = 4;

  void forward_output(int reads);

  const Sink sink_;
  Pipe pipe_;
  Process process_;
  bool has_ended_ = false;
};

}  // namespace lockstep::tool
