#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/serve/server.h"
#include "tests/support/free_ports.h"

namespace lockstep::testing {

// A cluster with parameter servers whose tasks, but for the chief, are servers in this process.
class ServerCluster {
 public:
  ServerCluster(int ps, int workers) {
    const auto addresses = [](int count) {
      std::vector<std::string> all;
      for (const int port : free_ports(count)) all.push_back(str("127.0.0.1:", port));
      return all;
    };
    spec_ = ClusterSpec({{"chief", addresses(1)}, {"worker", addresses(workers)}, {"ps", addresses(ps)}});
    for (const std::string job : {"ps", "worker"})
      for (int index = 0; index < (job == "ps" ? ps : workers); ++index) servers_.push_back(start(job, index));
  }

  std::shared_ptr<const ClusterResolver> chief() const { return task("chief", 0); }

 private:
  std::shared_ptr<const ClusterResolver> task(const std::string& job, int index) const {
    return std::make_shared<SimpleClusterResolver>(spec_, SimpleClusterOptions{.task_type = job, .task_id = index});
  }
  std::unique_ptr<Server> start(const std::string& job, int index) const {
    return std::make_unique<Server>(task(job, index), ServerOptions{});
  }

  ClusterSpec spec_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace lockstep::testing
