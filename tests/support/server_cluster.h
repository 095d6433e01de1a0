#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/serve/server.h"
#include "tests/support/free_ports.h"

namespace lockstep::testing {

// A cluster with parameter servers whose tasks, but for the chief, are servers in this process. Where the options name no
// devices workers compute on the CPU, on machines with GPUs too: tests compare bits with what they compute themselves.
class ServerCluster {
 public:
  ServerCluster(int ps, int workers, ServerOptions options = {}) : options_(on_cpu(std::move(options))) {
    auto ports = free_ports(1 + workers + ps);
    const auto addresses = [&](int count) {
      std::vector<std::string> all;
      for (; count > 0; --count, ports.pop_back()) all.push_back(str("127.0.0.1:", ports.back()));
      return all;
    };
    spec_ = ClusterSpec({{"chief", addresses(1)}, {"worker", addresses(workers)}, {"ps", addresses(ps)}});
    for (int index = 0; index < ps; ++index) start("ps", index);
    for (int index = 0; index < workers; ++index) start("worker", index);
  }

  std::shared_ptr<const ClusterResolver> chief() const { return task("chief", 0); }
  const ClusterSpec& spec() const { return spec_; }

  // At its address, as a new process would: without what it had.
  void start(const std::string& job, int index) {
    servers_[{job, index}] = std::make_unique<Server>(task(job, index), options_);
  }
  // What runs is asked to end: a thread cannot be killed.
  void stop(const std::string& job, int index) { servers_.erase({job, index}); }

 private:
  static ServerOptions on_cpu(ServerOptions options) {
    if (options.devices.empty()) options.devices = {"CPU:0"};
    return options;
  }

  std::shared_ptr<const ClusterResolver> task(const std::string& job, int index) const {
    return std::make_shared<SimpleClusterResolver>(spec_, SimpleClusterOptions{.task_type = job, .task_id = index});
  }

  const ServerOptions options_;
  ClusterSpec spec_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Server>> servers_;
};

}  // namespace lockstep::testing
