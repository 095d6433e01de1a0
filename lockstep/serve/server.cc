#include "lockstep/serve/server.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/cluster/resolve.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/ps/closure_service.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/held_gradients.h"
#include "lockstep/ps/memory.h"
#include "lockstep/ps/replica_host.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/step_arbiter.h"
#include "lockstep/ps/store.h"
#include "lockstep/ps/task_report.h"
#include "lockstep/serve/checkpoint_service.h"
#include "lockstep/serve/group_snapshots.h"
#include "lockstep/serve/share_cores.h"
#include "lockstep/serve/snapshots.h"
#include "lockstep/serve/task_metrics.h"
#include "lockstep/serve/update_counter.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_devices.h"
#include "lockstep/train/optimizers/server_rule.h"

namespace lockstep {
namespace {

// A worker's own devices; its variables are on the parameter servers.
class WorkerStrategy : public Strategy {
 public:
  WorkerStrategy(const std::vector<std::string>& devices, const std::shared_ptr<ps::ServerVariables>& variables,
                 std::string prefix)
      : Strategy(prepare_devices(resolve_devices("Server", devices, 1), FreedMemory::kKeep, devices.size()),
                 {.variable_host = variables}, default_cross_device_ops()),
        prefix_(std::move(prefix)) {
    variables->set_replicas(replicas().shared_from_this());
  }
  std::string name() const override { return "ParameterServerStrategy"; }
  std::string task_prefix() const override { return prefix_; }

 private:
  const std::string prefix_;
};

bool is_server(const ClusterResolver* resolver) {
  if (resolver == nullptr) return false;
  const auto spec = resolver->cluster_spec();
  const auto type = resolver->task_type();
  return task_count(spec, "ps") > 0 && (type == "ps" || type == "worker");
}

// Which task this is. Throws kInvalidArgument unless it serves.
Task task_of(const ClusterResolver* resolver) {
  if (!is_server(resolver))
    throw Error(ErrorCode::kInvalidArgument, str("Server: this process is ",
                                                 resolver == nullptr ? "in no cluster"
                                                                     : str("task '", resolver->task_type().value_or("none"),
                                                                           "' of ", resolver->cluster_spec()),
                                                 "; ps and worker tasks of a cluster with parameter servers serve"));
  validate_cluster_spec(resolver->cluster_spec(), resolver->task_type(), resolver->task_id());
  return {*resolver->task_type(), resolver->task_id().value_or(0)};
}

// Nothing: it keeps none. Throws kInvalidArgument for a period that is none.
std::optional<internal::SnapshotOptions> snapshot_options(const Task& task, const ServerOptions& options) {
  const Environment environment;
  const auto folder =
      options.snapshot_folder.empty() ? environment.get("LOCKSTEP_SNAPSHOT_FOLDER").value_or("") : options.snapshot_folder;
  if (folder.empty()) return std::nullopt;
  internal::SnapshotOptions kept{str(folder, "/ps-", task.index), ps::task_name(task), str("-ps-", task.index)};
  const auto text = environment.get("LOCKSTEP_SNAPSHOT_SECONDS");
  if (options.snapshot_every.count() != 0) {
    kept.every = options.snapshot_every;
  } else if (text) {
    const auto seconds = whole_number<double>(*text);
    if (!seconds || !(*seconds > 0 && *seconds < 1e9))
      throw Error(ErrorCode::kInvalidArgument,
                  str("LOCKSTEP_SNAPSHOT_SECONDS is '", *text, "'; it is a number of seconds above 0"));
    kept.every = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*seconds));
  }
  require(kept.every.count() > 0, "ServerOptions::snapshot_every must be above 0");
  return kept;
}

std::vector<std::string> devices_of(const ServerOptions& options) {
  if (!options.devices.empty()) return options.devices;
  const auto gpus = list_logical_devices("GPU");
  return gpus.empty() ? std::vector<std::string>{"CPU:0"} : gpus;
}

}  // namespace

// Members are destroyed from the last one up: the server first, then what its methods use.
struct Server::State {
  State(const ClusterResolver& resolver, const Task& task, const ServerOptions& options);

  void serve_variables(const ClusterSpec& spec, const Task& task, const ServerOptions& options);
  void serve_closures(const ClusterSpec& spec, const Task& task, const ServerOptions& options);
  ps::TaskReport report() const;

  // Const after construction.
  const std::string name;
  const ps::TaskReport start;  // of a report
  std::map<std::string, ps::Method> methods;
  std::unique_ptr<internal::UpdateCounter> counter;  // of a parameter server that keeps snapshots
  std::unique_ptr<ps::VariableStore> store;          // of a parameter server; of a worker, its copies of per-worker variables
  std::unique_ptr<ps::HeldGradients> gradients;      // of a parameter server, as the next five
  ps::StepArbiter arbiter;
  std::unique_ptr<internal::GroupSnapshots> group_snapshots;
  std::unique_ptr<ps::ReplicaHost> replicas;
  std::jthread group_snapshot_taker;
  std::unique_ptr<internal::Snapshots> snapshots;
  std::unique_ptr<ps::Connections> connections;  // of a worker, as all below
  std::shared_ptr<ps::ServerVariables> variables;
  std::unique_ptr<WorkerStrategy> strategy;
  std::unique_ptr<ps::ClosureService> closures;
  std::unique_ptr<ps::RpcServer> rpc_server;
  std::unique_ptr<TaskMetrics> metrics;  // null: none are asked for

  // Guarded by mu.
  std::mutex mu;
  std::condition_variable changed;
  bool is_stopped = false;
};

Server::State::State(const ClusterResolver& resolver, const Task& task, const ServerOptions& options)
    : name(ps::task_name(task)), start(ps::report_of(task, resolver.cluster_spec())) {
  const auto spec = resolver.cluster_spec();
  auto rpc = ps::rpc_options(options.secret, options.tls);
  // Changes of replicated variables wait for other servers, and those for us: there must be threads for both.
  if (task.type == "ps") rpc.most_threads = 192;
  if (task.type == "ps") serve_variables(spec, task, options);
  else serve_closures(spec, task, options);
  ps::TaskFacts facts{name, getpid(), task.type == "ps" ? 0 : static_cast<std::int64_t>(list_logical_devices("GPU").size())};
  if (strategy != nullptr)
    for (const auto& device : strategy->replicas().devices())
      facts.devices.push_back(str("/device:", device.type, ":", device.index));
  methods[ps::TaskFacts::kMethod] = {[facts](ps::Incoming&, ps::Outgoing& reply) { reply.fields = ps::to_bytes(facts); },
                                     ps::HandlerKind::kQuick};
  methods[ps::TaskReport::kMethod] = ps::report_method([this] { return report(); });
  const auto address = Address::parse(spec.task_address(task.type, task.index), name);
  rpc_server = std::make_unique<ps::RpcServer>(address, methods, rpc);
  if (const auto at = options.metrics.empty() ? metrics_address(spec, task) : options.metrics; !at.empty())
    metrics = std::make_unique<TaskMetrics>(at, [this] { return report(); });
  if (metrics != nullptr) log_info(str("Server: ", name, " answers Prometheus at port ", metrics->port()));
  log_info(str("Server: ", name, " serves at ", address));
}

void Server::State::serve_variables(const ClusterSpec& spec, const Task& task, const ServerOptions& options) {
  ps::StoreOptions of_store{.rules = make_server_rule, .most_bytes = options.most_bytes};
  of_store.memory = std::make_shared<ps::Memory>(options.most_bytes);
  ps::ReplicaHostOptions of_replicas{.server = static_cast<std::uint32_t>(task.index), .store = of_store};
  of_replicas.more_methods = [](ps::VariableStore& of_group) { return internal::checkpoint_methods(of_group, real_files()); };
  const auto rpc = ps::rpc_options(options.secret, options.tls);
  for (const auto& [index, address] : spec.tasks("ps")) {
    const auto other = ps::task_name({"ps", index});
    of_replicas.servers.push_back(ps::target_of(std::make_shared<ps::RpcChannel>(other, Address::parse(address, other), rpc)));
  }
  const auto kept = snapshot_options(task, options);
  if (kept) {
    real_files().make_folder(kept->folder);
    counter = std::make_unique<internal::UpdateCounter>(kept->folder + "/updates.count");
    of_store.done = &counter->count();
  }
  store = std::make_unique<ps::VariableStore>(of_store);
  ServerRecovery recovery{name,
                          static_cast<std::uint64_t>(std::random_device()()) << 32 | static_cast<std::uint32_t>(getpid())};
  if (kept) {
    snapshots = std::make_unique<internal::Snapshots>(*store, *counter, *kept);
    recovery = snapshots->recovery();
    group_snapshots = std::make_unique<internal::GroupSnapshots>(*kept);
    of_replicas.saved = group_snapshots->saved();
    of_replicas.restore = [this](std::uint32_t group, ps::VariableStore& into) { group_snapshots->restore(group, into); };
  }
  replicas = std::make_unique<ps::ReplicaHost>(of_replicas);
  if (kept) group_snapshot_taker = group_snapshots->take_always(*replicas);
  gradients = std::make_unique<ps::HeldGradients>(*store, options.most_bytes);
  methods = store->methods();
  methods.merge(replicas->methods());
  methods.merge(gradients->methods());
  methods.merge(arbiter.methods());
  methods.merge(internal::checkpoint_methods(*store, real_files()));
  methods[ServerRecovery::kMethod] = {[recovery](ps::Incoming&, ps::Outgoing& reply) { reply.fields = ps::to_bytes(recovery); },
                                      ps::HandlerKind::kQuick};
}

void Server::State::serve_closures(const ClusterSpec& spec, const Task& task, const ServerOptions& options) {
  store = std::make_unique<ps::VariableStore>();
  const ps::ClientOptions client{.timeout = options.call_timeout};
  connections =
      std::make_unique<ps::Connections>(spec, ps::Replication::kAsk, ps::rpc_options(options.secret, options.tls), client);
  variables = std::make_shared<ps::ServerVariables>(connections->client, nullptr, str("worker_", task.index, "/"));
  const auto prefix = str("/job:worker/replica:0/task:", task.index);
  const auto itself = std::make_shared<ps::RpcChannel>(name, Address::parse(spec.task_address(task.type, task.index), name),
                                                       ps::rpc_options(options.secret, options.tls));
  variables->set_copies({std::make_shared<ps::ParameterClient>(std::vector{itself}, client), {prefix + "/device:CPU:0"}});
  const auto devices = devices_of(options);
  strategy = std::make_unique<WorkerStrategy>(devices, variables, prefix);
  const WorkerTask worker{static_cast<int>(task.index), static_cast<int>(spec.num_tasks("worker")), name,
                          static_cast<int>(devices.size())};
  const auto enter = [this, threads = at::get_num_threads()] {
    // In this order (ARCHITECTURE.md, Traps). Closures compute with as many threads as who made the server, and so the same
    // bits.
    at::get_num_threads();
    at::set_num_threads(threads);
    return std::static_pointer_cast<void>(std::make_shared<Scope>(strategy->scope()));
  };
  closures = std::make_unique<ps::ClosureService>(worker, ps::ClosureServiceOptions{.enter = enter});
  closures->attach(variables);
  methods = store->methods();
  methods.merge(closures->methods());
}

ps::TaskReport Server::State::report() const {
  auto report = start;
  if (closures != nullptr) report.worker = closures->status();
  else report.store = store->statistics();
  if (replicas != nullptr) report.groups = replicas->reports();
  return report;
}

Server::Server(std::shared_ptr<const ClusterResolver> cluster_resolver, const ServerOptions& options) {
  const auto resolver = cluster_resolver != nullptr ? std::move(cluster_resolver) : resolve_cluster();
  const auto task = task_of(resolver.get());
  state_ = std::make_unique<State>(*resolver, task, options);
}

Server::~Server() {
  stop();
  if (state_->closures != nullptr) state_->closures->stop();
  if (state_->replicas != nullptr) state_->replicas->stop();
}

const std::string& Server::name() const noexcept { return state_->name; }

int Server::metrics_port() const noexcept { return state_->metrics == nullptr ? 0 : state_->metrics->port(); }

void Server::join() {
  std::unique_lock lock(state_->mu);
  state_->changed.wait(lock, [this] { return state_->is_stopped; });  // a server waits for whatever comes
}

void Server::stop() noexcept {
  const std::lock_guard lock(state_->mu);
  state_->is_stopped = true;
  state_->changed.notify_all();
}

bool run_role_if_server(const ServerOptions& options) {
  auto resolver = resolve_cluster();
  if (!is_server(resolver.get())) return false;
  internal::prepare_process(resolver->cluster_spec(), task_of(resolver.get()));
  Server server(std::move(resolver), options);
  server.join();
  return true;
}

}  // namespace lockstep
