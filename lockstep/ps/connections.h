#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/ps/client.h"
#include "lockstep/ps/group_target.h"
#include "lockstep/ps/rpc.h"

namespace lockstep::ps {

class ViewKeeper;

// "/job:ps/task:0", as texts and logs name it.
std::string task_name(const Task& task);

// What every server tells who asks.
struct TaskFacts {
  static constexpr const char* kMethod = "task.facts";

  std::string name = "";
  std::int64_t pid = 0;
  std::int64_t gpus = 0;
  std::vector<std::string> devices = {};  // of a worker: what computes, a replica each ("/device:GPU:0")
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, pid, gpus, devices);
  }
};

// The secret and the certificates: what was given, else the environment's.
RpcOptions rpc_options(const std::string& secret, const TlsFiles& tls);

// The ways from this task to the others of its job.
struct Connections {
  // To all parameter servers and, for a coordinator, all workers, in the order of their indices. Nobody is waited for. A
  // coordinator knows whether variables are replicated; workers ask (Replication::kAsk).
  Connections(const ClusterSpec& spec, Replication replication, const RpcOptions& rpc, const ClientOptions& client);

  // The servers as they are, whatever groups they have.
  std::vector<std::shared_ptr<CallTarget>> server_targets() const;

  // Waits for all, and returns what the workers say. Throws kDeadlineExceeded naming those that do not answer.
  std::vector<TaskFacts> wait_for_all(const Deadline& deadline) const;

  std::vector<std::shared_ptr<RpcChannel>> servers;
  std::vector<std::shared_ptr<RpcChannel>> workers;
  std::shared_ptr<ParameterClient> client;
  std::shared_ptr<ViewKeeper> keeper;  // of a coordinator whose variables are replicated
};

}  // namespace lockstep::ps
