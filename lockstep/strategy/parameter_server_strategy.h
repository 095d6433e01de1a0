#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/ps/partitioner.h"
#include "lockstep/ps/recovery.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

namespace ps {
class RestartWatch;
class ServerVariables;
struct Connections;
}  // namespace ps

template <typename M>
class HostedModel;

struct ParameterServerOptions {
  // How long the coordinator waits for all servers at the start.
  std::chrono::nanoseconds join_timeout = std::chrono::minutes(10);
  // How long a read or write of a variable is tried, over connections that break and servers that come back.
  std::chrono::nanoseconds call_timeout = std::chrono::minutes(1);
  // On how many servers each variable is, with its optimizer: 1, or 2. With 2 a write returns when both have it, a server that
  // is lost loses nothing, and one that is started again is filled by the others: Note [replication] in ps/group_view.h. All
  // coordinators of a job have the same; it needs two servers.
  int replication = 1;
  // All tasks have the same; "": LOCKSTEP_JOB_SECRET.
  std::string secret = "";
  // None: LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY, else plain connections.
  TlsFiles tls = {};
};

// Variables on parameter servers, and work on workers that a coordinator hands out: asynchronous training.
//
//   int main() {
//     if (lockstep::run_role_if_server()) return 0;     // ps and worker tasks stay in there
//     lockstep::ParameterServerStrategy strategy;       // the chief: lockstep run --ps 2 --workers 3 --chief ./train
//     lockstep::ClusterCoordinator coordinator(strategy);
//
// Only the coordinator's process makes one. Every variable made in its scope lives on one server, in turns, or is divided over
// several when a partitioner says so (Variable::shards). run() and reduce() on the coordinator use its own device, a CPU;
// training is scheduled. Workers train asynchronously, the devices of one of them in sync: num_replicas_in_sync() is how many
// devices each worker computes on (its GPUs, or 1; ServerOptions::devices), not the number of workers, and
// extended().worker_devices() names them without a task ("/device:GPU:0").
class ParameterServerStrategy : public Strategy {
 public:
  // `cluster_resolver` null: what the environment describes. Waits for all servers. Throws kInvalidArgument for a cluster
  // without a ps or a worker, with jobs it does not know, whose workers have different numbers of GPUs, or with too few servers
  // for `replication`; kDeadlineExceeded naming the servers that do not answer; kFailedPrecondition when servers have variables
  // with another `replication`.
  explicit ParameterServerStrategy(std::shared_ptr<const ClusterResolver> cluster_resolver = nullptr,
                                   Partitioner variable_partitioner = nullptr, const ParameterServerOptions& options = {});
  ~ParameterServerStrategy() override;

  std::string name() const override { return "ParameterServerStrategy"; }
  const ClusterResolver* cluster_resolver() const override;

  // A module M(args...) whose parameters live on the servers; every worker has a copy that is filled from there. Arguments are
  // sent: numbers, strings, tensors and structures of them. See train/hosted.h, which must be included.
  template <typename M, typename... Args>
  HostedModel<M> hosted(const Args&... args);

  // How each parameter server began: from which snapshot, and how many updates that had been acknowledged are lost. Asks them
  // now; throws kUnavailable or kDeadlineExceeded naming one that does not answer. The log says it, too, when one is started
  // again while the job runs.
  std::vector<ServerRecovery> server_recoveries();

  // For ClusterCoordinator and hosted models.
  const std::shared_ptr<ps::Connections>& connections() const noexcept { return connections_; }
  const std::shared_ptr<ps::ServerVariables>& variables() const noexcept { return variables_; }

 private:
  friend class ClusterCoordinator;

  struct Start;
  explicit ParameterServerStrategy(Start start);
  // Tells `lockstep inspect` what this coordinator does.
  void answer_questions(const ps::RpcOptions& rpc);

  // Const after construction.
  std::shared_ptr<const ClusterResolver> resolver_;
  std::shared_ptr<ps::Connections> connections_;
  std::shared_ptr<ps::ServerVariables> variables_;
  std::unique_ptr<ps::RestartWatch> restarts_;

  // Guarded by mu_.
  std::mutex mu_;
  std::optional<ClusterCoordinator> coordinator_;  // once it was asked for

  std::unique_ptr<ps::RpcServer> answers_;  // null: it cannot listen. Last: it uses the others
};

namespace runner {

// TF-GNN's wrapper: the cluster of TF_CONFIG, and variables that are divided over all its parameter servers, in shards of
// `min_shard_bytes` or more. Throws kInvalidArgument when TF_CONFIG names no ps.
class ParameterServerStrategy : public lockstep::ParameterServerStrategy {
 public:
  explicit ParameterServerStrategy(std::optional<std::int64_t> min_shard_bytes = std::nullopt);

 private:
  ParameterServerStrategy(std::shared_ptr<const ClusterResolver> resolver, std::optional<std::int64_t> min_shard_bytes);
};

}  // namespace runner
}  // namespace lockstep
