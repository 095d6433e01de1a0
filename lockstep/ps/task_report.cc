#include "lockstep/ps/task_report.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {

TaskReport report_of(const Task& task, const ClusterSpec& cluster) {
  return {.job = task.type, .index = task.index, .pid = getpid(), .cluster = cluster.to_json()};
}

const char* name_of(GroupRole role) noexcept {
  return role == GroupRole::kPrimary ? "primary" : role == GroupRole::kBackup ? "backup" : "none";
}

StoreStatistics TaskReport::all_variables() const {
  auto all = store.value_or(StoreStatistics());
  for (const auto& group : groups) {
    const auto& one = group.store;
    all.variables += one.variables;
    all.bytes += one.bytes;
    all.staged_bytes += one.staged_bytes;
    all.updates += one.updates;
    all.reads += one.reads;
    all.updates_per_second += one.updates_per_second;
    all.requests += one.requests;
    all.clients = std::max(all.clients, one.clients);
    all.staleness.resize(std::max(all.staleness.size(), one.staleness.size()));
    for (std::size_t i = 0; i < one.staleness.size() && group.role == GroupRole::kPrimary; ++i)
      all.staleness[i] += one.staleness[i];
  }
  return all;
}

Method report_method(std::function<TaskReport()> make) {
  return {[make = std::move(make)](Incoming&, Outgoing& reply) { reply.fields = to_bytes(make()); }, HandlerKind::kQuick};
}

std::unique_ptr<RpcServer> serve_report(const Task& task, const ClusterSpec& cluster, const RpcOptions& options,
                                        std::function<TaskReport()> make) try {
  const auto address = Address::parse(cluster.task_address(task.type, task.index), str(task));
  return std::make_unique<RpcServer>(address, std::map<std::string, Method>{{TaskReport::kMethod, report_method(make)}},
                                     options);
} catch (const Error& error) {
  log_info(str(task, " does not answer `lockstep inspect`: ", error.message()));
  return nullptr;
}

}  // namespace lockstep::ps
