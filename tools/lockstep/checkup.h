#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/cluster/coordination.h"
#include "lockstep/collective/shared_block.h"
#include "tools/lockstep/doctor.h"
#include "tools/lockstep/findings.h"
#include "tools/lockstep/machine.h"
#include "tools/lockstep/probe.h"

namespace lockstep::tool {

// Note [a checkup]
// Every task of the cluster does the same, step by step; the coordination service of the first task is where they meet.
//   1. Alone: names, own port, own machine.
//   2. They register, and tell each other where to probe them, which machine they are on, and a block of memory.
//   3. Each connects to each, and opens the memory of those on its own machine.
//   4. In rounds, in which nobody is in two pairs, the lower one of each pair measures the way to the other.
//   5. The first task collects all findings, prints them, and tells the others how it ended.
// What fails ends as a finding; only what makes the next step impossible ends the checkup.
class Checkup {
 public:
  // Throws kInvalidArgument when the task is not one of the spec's.
  Checkup(const DoctorOptions& options, ClusterSpec spec, Task task);
  ~Checkup();

  // True when all is good.
  bool run();

 private:
  // What a task tells the others.
  struct Facts {
    Address probe;
    std::uint64_t token = 0;
    std::string host;
    MachineFacts machine;
    std::string memory;  // the ticket of a block
  };
  static std::string to_text(const Facts& facts);
  static Facts facts_from(const std::string& text);

  bool is_leader() const { return task_ == tasks_[0]; }
  std::string me() const;
  std::string key(const char* what, const Task& task) const;
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  // Runs a step; an error is its finding. False: it failed.
  bool step(const std::string& check, const std::string& fix, const std::function<void()>& body);

  void check_names();
  void open_probe();
  void join();
  void exchange_facts();
  void check_own_name();
  void connect_to_all();
  void open_memory();
  void measure_pairs();
  void measure(std::size_t other);
  void check_machines();
  // True when all is good.
  bool conclude();

  // Const after construction.
  const DoctorOptions& options_;
  const ClusterSpec spec_;
  const Task task_;
  const std::vector<Task> tasks_;  // the leader first
  const std::size_t index_;        // of this one
  Address coordinator_;
  std::optional<Address> own_;  // as the spec says

  std::vector<Finding> findings_;
  std::vector<Facts> facts_;           // as in tasks_
  std::set<std::size_t> unreachable_;  // of tasks_
  std::unique_ptr<CoordinationServer> server_;
  std::unique_ptr<CoordinationClient> client_;
  std::unique_ptr<ProbeServer> probe_;
  SharedBlock memory_;  // that others are to open
};

}  // namespace lockstep::tool
