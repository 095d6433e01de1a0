#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/ps/closure_messages.h"
#include "lockstep/ps/group_view.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/store_messages.h"

// What the tasks of a job with parameter servers tell about themselves: `lockstep inspect` asks for it, and metrics are made of
// it.

namespace lockstep::ps {

// What a coordinator has to hand out, and to whom.
struct CoordinatorStatistics {
  std::uint64_t queued = 0;               // closures that wait
  std::uint64_t in_flight = 0;            // those that workers have
  std::uint64_t workers = 0;              // all of the job
  std::vector<std::string> missing = {};  // of them: "/job:worker/task:1"
  template <typename Fields>
  void list(Fields& fields) {
    fields(queued, in_flight, workers, missing);
  }
};

// A replicated group as one server has it: Note [replication].
struct GroupReport {
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;
  GroupRole role = GroupRole::kNone;
  bool is_on_two = false;  // a primary's backup has all of it; a backup has
  StoreStatistics store = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(group, epoch, role, is_on_two, store);
  }
};
// "primary", "backup", for texts.
const char* name_of(GroupRole role) noexcept;

struct TaskReport {
  static constexpr const char* kMethod = "task.report";

  std::string job = "";  // "ps", "worker", "chief"
  std::int64_t index = 0;
  std::int64_t pid = 0;
  std::string cluster = "";                                         // ClusterSpec::to_json()
  std::optional<StoreStatistics> store = std::nullopt;              // of a parameter server: variables without replication
  std::vector<GroupReport> groups = {};                             // of one with replication
  std::optional<closures::Status> worker = std::nullopt;            // of a worker
  std::optional<CoordinatorStatistics> coordinator = std::nullopt;  // of the coordinator
  template <typename Fields>
  void list(Fields& fields) {
    fields(job, index, pid, cluster, store, groups, worker, coordinator);
  }

  Task task() const { return {job, index}; }
  // Of a parameter server: all that it has, as primary, backup, or alone.
  StoreStatistics all_variables() const;
};

// What this process says of itself before anything is known of its work.
TaskReport report_of(const Task& task, const ClusterSpec& cluster);

// Gives what `make` makes, which must not wait for anything.
Method report_method(std::function<TaskReport()> make);

// Answers for a coordinator, at its address in the cluster, until it is destroyed. Null, with a line in the log, when there is
// no such address or it is taken: that is no reason not to train.
std::unique_ptr<RpcServer> serve_report(const Task& task, const ClusterSpec& cluster, const RpcOptions& options,
                                        std::function<TaskReport()> make);

}  // namespace lockstep::ps
