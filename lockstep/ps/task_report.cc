#include "lockstep/ps/task_report.h"

#include <unistd.h>

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {

TaskReport report_of(const Task& task, const ClusterSpec& cluster) {
  return {.job = task.type, .index = task.index, .pid = getpid(), .cluster = cluster.to_json()};
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
