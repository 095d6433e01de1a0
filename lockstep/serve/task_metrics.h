#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/observe/metrics_endpoint.h"

namespace lockstep {

class ClusterCoordinator;
namespace ps {
struct TaskReport;
}  // namespace ps

// The numbers of one task of a job with parameter servers for Prometheus, taken when it asks: what `lockstep inspect` shows.
// Servers and workers make theirs themselves (ServerOptions::metrics); a coordinator does when its program wants it:
//
//   lockstep::TaskMetrics metrics("9464", coordinator);
//
// See MetricsEndpoint for addresses, and for what is thrown.
class TaskMetrics {
 public:
  TaskMetrics(const std::string& address, const ClusterCoordinator& coordinator);
  // `report` is called on the endpoint's thread, and must not wait for anything.
  TaskMetrics(const std::string& address, std::function<ps::TaskReport()> report);

  int port() const noexcept { return endpoint_.port(); }

 private:
  explicit TaskMetrics(const std::string& address, const std::shared_ptr<MetricsRegistry>& registry)
      : endpoint_(address, registry) {}

  MetricsEndpoint endpoint_;
};

// Where LOCKSTEP_METRICS wants this task's numbers: its port and the task's number in the cluster. "": nowhere. Throws
// kInvalidArgument for another text than a port, or a host and a port.
std::string metrics_address(const ClusterSpec& cluster, const Task& task, const Environment& environment = {});

}  // namespace lockstep
