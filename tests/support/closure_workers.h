#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/ps/closure_service.h"
#include "lockstep/ps/cluster_coordinator.h"

// Workers of a coordinator as servers of this process, on ports of the loopback interface.

namespace lockstep::testing {

class ClosureWorker {
 public:
  explicit ClosureWorker(WorkerTask task) : task_(std::move(task)) { start(); }
  ~ClosureWorker() { kill(); }
  ClosureWorker(ClosureWorker&&) = delete;

  // Comes back on its port, as a new process would.
  void start() {
    service_ = std::make_unique<ps::ClosureService>(task_);
    server_ = std::make_unique<ps::RpcServer>(Address{"127.0.0.1", port_}, service_->methods());
    port_ = server_->port();
  }
  // What runs is asked to end: a thread cannot be killed.
  void kill() {
    if (service_) service_->stop();
    server_ = nullptr;
    service_ = nullptr;
  }

  WorkerLink link() const { return {task_.name, std::make_shared<ps::RpcChannel>(task_.name, Address{"127.0.0.1", port_})}; }
  const ps::ClosureService& service() const { return *service_; }

 private:
  const WorkerTask task_;
  int port_ = 0;
  std::unique_ptr<ps::ClosureService> service_;
  std::unique_ptr<ps::RpcServer> server_;
};

// So many workers, and a coordinator for them.
class ClosureCluster {
 public:
  explicit ClosureCluster(int count, const CoordinatorOptions& options = {}) {
    std::vector<WorkerLink> links;
    for (int i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<ClosureWorker>(WorkerTask{i, count, str("/job:worker/task:", i)}));
      links.push_back(workers_.back()->link());
    }
    coordinator_ = std::make_unique<ClusterCoordinator>(links, options);
  }

  ClusterCoordinator& operator*() { return *coordinator_; }
  ClusterCoordinator* operator->() { return coordinator_.get(); }
  ClosureWorker& worker(std::size_t index) { return *workers_.at(index); }
  void end_coordinator() { coordinator_ = nullptr; }

 private:
  std::vector<std::unique_ptr<ClosureWorker>> workers_;
  std::unique_ptr<ClusterCoordinator> coordinator_;
};

}  // namespace lockstep::testing
