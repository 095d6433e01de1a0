#pragma once

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/address.h"
#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/ps/task_report.h"

namespace lockstep::tool {

// One task of a job with parameter servers, and what it said.
struct TaskAnswer {
  Task task = {};
  std::string address = "";
  std::optional<ps::TaskReport> report = std::nullopt;  // absent: it did not answer
  std::string why_not = "";                             // then
  // Of a parameter server that was asked alone: what it has without replication, and of the groups in its report, in their
  // order.
  std::vector<ps::Described> variables = {};
  std::vector<std::vector<ps::Described>> group_variables = {};
};

struct ServersView {
  std::vector<TaskAnswer> tasks = {};  // the coordinator first, then parameter servers and workers
};

// What the task at this address knows; of a coordinator's, all tasks of the job. Nothing: whoever is there belongs to no job
// with parameter servers. The secret and certificates are those that the environment names. Throws kFailedPrecondition when
// the task refuses us, kUnavailable and kDeadlineExceeded when nobody is there.
std::optional<ServersView> inspect_servers(const Address& address, std::chrono::nanoseconds timeout);
// All tasks of this cluster. None has to be there.
ServersView inspect_servers(const ClusterSpec& cluster, std::chrono::nanoseconds timeout);

// As tables, or as JSON.
void print_servers(std::ostream& out, const ServersView& view, bool as_json);

}  // namespace lockstep::tool
