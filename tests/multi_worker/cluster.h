#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/free_ports.h"

// Real processes for tests: the workers of a cluster on this machine's loopback, each with a TF_CONFIG of its own.

namespace lockstep::testing {

using Variables = std::map<std::string, std::string>;

// What a process is started with. Its environment is this one's, without what describes a cluster, and `variables`.
struct Command {
  std::vector<std::string> words = {};  // the program and its arguments
  Variables variables = {};
};

// What became of a process.
struct Ending {
  std::string name = "";
  std::string output = "";  // standard output
  std::string log = "";     // standard error
  int exit_code = -1;       // -1: a signal ended it
  bool was_late = false;    // it was killed at the deadline
  std::chrono::duration<double> lasted = {};

  std::vector<std::string> lines() const;  // of the output
  // The rest of the first line that begins with `word` and a space; nothing: there is none.
  std::optional<std::string> after(const std::string& word) const;
  // "kUnavailable" of the line "error kUnavailable ..."; "" when there is none.
  std::string error_code() const;
};

// Everything that is known, for the message of a test that fails.
std::ostream& operator<<(std::ostream& out, const Ending& ending);

// A running process, which does not outlive this object.
class Process {
 public:
  using Clock = std::chrono::steady_clock;

  Process(std::string name, const Command& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;

  // Waits until the process has printed a line that begins with `text`; false: it ended, or the deadline passed.
  bool wait_for_line(const std::string& text, Clock::time_point deadline);
  // The same for `text` anywhere in its log.
  bool wait_for_log(const std::string& text, Clock::time_point deadline);

  // Waits until it has ended; false: the deadline passed.
  bool is_over(Clock::time_point deadline);

  // Waits until it has ended; kills it, and what it started, at the deadline.
  Ending wait(Clock::time_point deadline);

 private:
  bool wait_for(const std::function<bool()>& is_there, Clock::time_point deadline);
  void end();

  // Const after construction.
  const std::string name_;
  const Clock::time_point started_;
  int output_ = -1;  // files in memory
  int log_ = -1;
  pid_t pid_ = 0;
  int watch_ = -1;  // readable when the process has ended

  // Used by one thread.
  std::optional<int> status_;  // of waitpid; nothing: it runs
  Clock::time_point ended_;
};

// Waits for all and returns their endings in this order. Those that are late are killed.
std::vector<Ending> join_all(const std::vector<std::unique_ptr<Process>>& processes, std::chrono::seconds limit);

// Starts one process and waits for it.
Ending run_process(const std::string& name, const Command& command, std::chrono::seconds limit);

// A text that no other call gives.
std::string fresh_secret();

// The workers of one cluster: the program that tests/multi_worker/worker.cc is, with scenarios.
class Cluster {
 public:
  // Free ports for so many workers, and a secret that no other cluster has.
  explicit Cluster(int workers);

  int size() const noexcept { return static_cast<int>(addresses_.size()); }
  const std::vector<std::string>& addresses() const noexcept { return addresses_; }
  const std::string& secret() const noexcept { return secret_; }

  // {"cluster": {"worker": [...]}, "task": {"type": "worker", "index": k}}
  std::string tf_config(int worker) const;
  // What the worker is started with: `words` are a scenario and its parameters.
  Command command(int worker, const std::vector<std::string>& words) const;

  // Starts worker k, in any order. `variables` come before those of command().
  Process& start(int worker, const std::vector<std::string>& words, const Variables& variables = {});
  void start_all(const std::vector<std::string>& words);

  // join_all() of those that were started, in the order of the starts.
  std::vector<Ending> join(std::chrono::seconds limit);

 private:
  std::vector<std::string> addresses_;
  std::string secret_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace lockstep::testing
