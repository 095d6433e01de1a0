#include "lockstep/strategy/parameter_server_strategy.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/resolve.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/restart_watch.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/task_report.h"
#include "lockstep/ps/view_keeper.h"
#include "lockstep/strategy/strategy_devices.h"

namespace lockstep {
namespace {

constexpr const char* kName = "ParameterServerStrategy";

void require_servers(const ClusterResolver* resolver) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, str(kName, ": ", why)); };
  const auto spec = resolver == nullptr ? ClusterSpec() : resolver->cluster_spec();
  if (spec.empty())
    refuse(
        "there is no cluster; describe one with TF_CONFIG, or start the program with lockstep run --ps N --workers M --chief");
  validate_cluster_spec(spec, resolver->task_type(), resolver->task_id());
  if (task_count(spec, "ps") < 1) refuse(str("the cluster ", spec, " has no ps; there must be one at least"));
  if (task_count(spec, "worker") < 1) refuse(str("the cluster ", spec, " has no worker; there must be one at least"));
  if (const auto type = resolver->task_type(); type == "ps" || type == "worker")
    refuse(str("this task is ", *type, " ", resolver->task_id().value_or(0),
               ", which serves the coordinator; begin main() with `if (lockstep::run_role_if_server()) return 0;`"));
}

void require_replication(int replication, const ClusterSpec& spec) {
  const auto servers = task_count(spec, "ps");
  if (replication == 1 || (replication == 2 && servers >= 2)) return;
  throw Error(ErrorCode::kInvalidArgument, str(kName, ": replication = ", replication, " with ", servers,
                                               " parameter servers; it is 1, or 2 with at least "
                                               "two servers"));
}

// The devices of one worker, which are all workers'.
std::vector<std::string> devices_of(const std::vector<ps::TaskFacts>& workers) {
  for (const auto& worker : workers) {
    if (worker.gpus != workers[0].gpus)
      throw Error(ErrorCode::kInvalidArgument,
                  str(kName, ": ", workers[0].name, " has ", workers[0].gpus, " GPUs and ", worker.name, " ", worker.gpus,
                      "; all workers must have as many (CUDA_VISIBLE_DEVICES hides some)"));
    if (worker.devices.size() != workers[0].devices.size())
      throw Error(ErrorCode::kInvalidArgument,
                  str(kName, ": ", workers[0].name, " computes on ", workers[0].devices.size(), " devices and ", worker.name,
                      " on ", worker.devices.size(), "; all workers must have as many (ServerOptions::devices)"));
  }
  return workers[0].devices;
}

}  // namespace

struct ParameterServerStrategy::Start {
  Start(std::shared_ptr<const ClusterResolver> given, Partitioner partitioner, const ParameterServerOptions& options)
      : resolver(given != nullptr ? std::move(given) : resolve_cluster()), rpc(ps::rpc_options(options.secret, options.tls)) {
    require_servers(resolver.get());
    require_replication(options.replication, resolver->cluster_spec());
    const auto deadline = Deadline::after(options.join_timeout);
    const bool is_replicated = options.replication == 2;
    connections = std::make_shared<ps::Connections>(resolver->cluster_spec(),
                                                    is_replicated ? ps::Replication::kOn : ps::Replication::kOff, rpc,
                                                    ps::ClientOptions{.timeout = options.call_timeout});
    auto worker_devices = devices_of(connections->wait_for_all(deadline));
    devices = resolve_devices(kName, {"CPU:0"}, 1);
    if (is_replicated) connections->keeper = std::make_shared<ps::ViewKeeper>(connections->server_targets(), deadline);
    else ps::tell_unreplicated(connections->server_targets(), deadline);
    variables = std::make_shared<ps::ServerVariables>(connections->client, std::move(partitioner));
    variables->set_worker_devices(std::move(worker_devices));
    ps::ServerVariables::Copies copies{
        std::make_shared<ps::ParameterClient>(connections->workers, ps::ClientOptions{.timeout = options.call_timeout})};
    for (std::size_t worker = 0; worker < connections->workers.size(); ++worker)
      copies.devices.push_back(str("/job:worker/replica:0/task:", worker, "/device:CPU:0"));
    variables->set_copies(std::move(copies));
  }

  std::shared_ptr<const ClusterResolver> resolver;
  ps::RpcOptions rpc;
  std::shared_ptr<ps::Connections> connections;
  std::shared_ptr<ps::ServerVariables> variables;
  std::vector<LogicalDevice> devices;
};

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<const ClusterResolver> cluster_resolver,
                                                 Partitioner variable_partitioner, const ParameterServerOptions& options)
    : ParameterServerStrategy(Start(std::move(cluster_resolver), std::move(variable_partitioner), options)) {}

ParameterServerStrategy::ParameterServerStrategy(Start start)
    : Strategy(std::move(start.devices), {.variable_host = start.variables}, default_cross_device_ops()),
      resolver_(std::move(start.resolver)),
      connections_(std::move(start.connections)),
      variables_(std::move(start.variables)) {
  variables_->set_replicas(replicas().shared_from_this());
  restarts_ = std::make_unique<ps::RestartWatch>(connections_->servers);
  answer_questions(start.rpc);
  log_info(str(kName, ": the coordinator of ", connections_->workers.size(), " workers and ", connections_->servers.size(),
               " parameter servers"));
}

ParameterServerStrategy::~ParameterServerStrategy() = default;

void ParameterServerStrategy::answer_questions(const ps::RpcOptions& rpc) {
  const Task task{resolver_->task_type().value_or("chief"), resolver_->task_id().value_or(0)};
  const auto start = ps::report_of(task, resolver_->cluster_spec());
  answers_ = ps::serve_report(task, resolver_->cluster_spec(), rpc, [this, start] {
    auto report = start;
    std::optional<ClusterCoordinator> coordinator;
    {
      const std::lock_guard lock(mu_);
      coordinator = coordinator_;
    }
    report.coordinator =
        coordinator ? coordinator->statistics() : ps::CoordinatorStatistics{.workers = connections_->workers.size()};
    return report;
  });
}

std::vector<ServerRecovery> ParameterServerStrategy::server_recoveries() { return restarts_->ask(); }

ClusterCoordinator::ClusterCoordinator(ParameterServerStrategy& strategy, const CoordinatorOptions& options) {
  const std::lock_guard lock(strategy.mu_);
  if (!strategy.coordinator_) {
    std::vector<WorkerLink> workers;
    for (const auto& channel : strategy.connections()->workers) workers.push_back({channel->name(), channel});
    strategy.coordinator_.emplace(std::move(workers), options);
  }
  state_ = strategy.coordinator_->state_;
  require_max_staleness(options.max_staleness);
}

const ClusterResolver* ParameterServerStrategy::cluster_resolver() const { return resolver_.get(); }

namespace runner {
namespace {

Partitioner over_all_servers(const ClusterResolver& resolver, std::optional<std::int64_t> min_shard_bytes) {
  MinSizePartitionerOptions options{.max_shards = resolver.cluster_spec().num_tasks("ps")};
  if (min_shard_bytes) options.min_shard_bytes = *min_shard_bytes;
  return MinSizePartitioner(options);
}

}  // namespace

ParameterServerStrategy::ParameterServerStrategy(std::optional<std::int64_t> min_shard_bytes)
    : ParameterServerStrategy(std::make_shared<TFConfigClusterResolver>(), min_shard_bytes) {}

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<const ClusterResolver> resolver,
                                                 std::optional<std::int64_t> min_shard_bytes)
    : lockstep::ParameterServerStrategy(resolver, over_all_servers(*resolver, min_shard_bytes)) {}

}  // namespace runner
}  // namespace lockstep
