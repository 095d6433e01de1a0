#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lockstep/node.h"
#include "tools/lockstep/run_options.h"
#include "tools/lockstep/signals.h"
#include "tools/lockstep/task_output.h"

namespace lockstep::tool {

// A job that is under way: what all its attempts share.
struct Job {
  const RunOptions& options;
  const Signals& signals;
  Printer& printer;
  std::string secret;
  JobShape shape;
  std::vector<std::unique_ptr<Node>> nodes;  // as in shape.nodes
};

// kPreempted: somebody told tasks to go, and all that train have saved and ended. kInterrupted: this launcher was told to end.
enum class Outcome { kGood, kFailed, kPreempted, kInterrupted };

// One start of all tasks.
class Attempt {
 public:
  Attempt(Job& job, int number);

  // Starts all tasks and waits for their end. Throws what the nodes throw.
  Outcome run();
  // Whether all tasks that train have saved and ended: see kPreemptedExitCode.
  bool is_saved() const;
  // "worker 1 failed first: exit code 7, ..."; empty when none has failed.
  std::string failure() const;
  // Says it, with the task's last lines.
  void show_failure() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    Task task;
    std::size_t node;
    std::unique_ptr<TaskOutput> output;
    std::optional<Report> report;  // it has ended
  };

  // False when a signal asked for the end.
  bool prepare();
  void start();
  void wait_for_news() const;
  void work();
  void note_failures();
  void note_mixed_endings();
  bool is_training_over() const;
  void interrupt(int signal);
  void begin_end(int signal);
  void end_in_time();
  void send(int signal);

  Job& job_;
  const int number_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Entry> entries_;
  std::vector<std::size_t> news_;  // tasks that ended since the last look
  std::optional<std::size_t> failed_;
  std::optional<Clock::time_point> failed_at_;
  std::optional<std::size_t> preempted_;  // the first that has saved and ended
  std::optional<Clock::time_point> preempted_at_;
  Clock::duration time_to_end_;  // from end_began_ on
  std::optional<Clock::time_point> end_began_;
  bool was_interrupted_ = false;
  bool was_killed_ = false;
};

}  // namespace lockstep::tool
