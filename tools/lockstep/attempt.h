#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lockstep/backoff.h"
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
  int restarts = 0;                          // of all tasks, or of the chief
  int task_restarts = 0;                     // of one task that serves
};

// kPreempted: somebody told tasks to go, and all that decide have saved and ended. kInterrupted: this launcher was told to end.
enum class Outcome { kGood, kFailed, kPreempted, kInterrupted };

// Note [jobs with parameter servers]
// With parameter servers and a chief, the chief's program leads (a ClusterCoordinator); all other tasks serve it and do not end
// by themselves.
//   1. The job is over when the chief is. The others are told to end then, and how they do does not count.
//   2. One that ends before the chief is started again alone, with the same variables and address, while --task-restarts last;
//   then the job goes on without it: the chief's program knows what that means. An evaluator that ended well stays so.
//   3. A chief that fails, or was told to go and has saved, is started again while --max-restarts last, and with it whoever is
//   missing; all others keep running, since the servers hold the variables. Where a parameter server or a machine is missing
//   for good, they do not hold all, and all tasks are started again.
//   4. A signal that this launcher gets goes to the chief, which may have to save what the others hold; they are told to end
//   when the chief has ended.

// One start of all tasks.
class Attempt {
 public:
  Attempt(Job& job, int number);

  // Starts all tasks and waits for their end. Throws what the nodes throw.
  Outcome run();
  // The highest number with which a task was started; the next attempt's is above it.
  int last_number() const;
  // Whether all tasks that decide have saved and ended: see kPreemptedExitCode.
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
    std::size_t place;  // among the tasks of its node
    int number;         // of its attempt
    std::unique_ptr<TaskOutput> output;
    Backoff backoff;
    std::optional<Report> report = std::nullopt;               // it has ended
    std::optional<Clock::time_point> again_at = std::nullopt;  // and is to be started again

    bool is_over() const { return report && !again_at; }
    bool is_done() const { return task.type == "evaluator" && report->ending.is_good(); }
  };

  struct Event {
    std::size_t task;
    Clock::time_point at;
  };

  // False when a signal asked for the end.
  bool prepare();
  void start();
  void wait_for_news() const;
  void work();
  void note_failures();
  void note_mixed_endings();
  bool decides(const Entry& entry) const;
  bool is_decided() const;
  void interrupt(int signal);
  void begin_end(int signal);
  void end_in_time();
  void send(int signal);
  std::string name_of(const Entry& entry) const;
  void show(const Entry& entry, const std::string& text) const;

  // Jobs with parameter servers: attempt_servers.cc.
  // Leaves of the tasks that have ended those whose end is the job's.
  void look_after(std::vector<std::size_t>& ended);
  void replace(Entry& server);
  bool replace_chief();
  void start_due();

  Job& job_;
  const int number_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Entry> entries_;
  std::vector<std::size_t> news_;  // tasks that ended since the last look
  std::optional<Event> failed_;
  std::optional<Event> preempted_;  // the first that has saved and ended
  Clock::duration time_to_end_;     // from end_began_ on
  std::optional<Clock::time_point> end_began_;
  bool was_interrupted_ = false;
  bool was_killed_ = false;
  bool is_chief_asked_ = false;  // to end, and the others not yet
};

}  // namespace lockstep::tool
