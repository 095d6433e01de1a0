#include "lockstep/strategy/multi_worker_mirrored_strategy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/address.h"
#include "lockstep/cluster/resolve.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/strategy/strategy_extended.h"

namespace lockstep {
namespace {

constexpr const char* kName = "MultiWorkerMirroredStrategy";

std::vector<std::string> devices_to_use(const std::vector<std::string>& named) {
  if (!named.empty()) return named;
  const auto gpus = list_logical_devices("GPU");
  return gpus.empty() ? std::vector<std::string>{"CPU:0"} : gpus;
}

std::uint64_t seed_here(const MultiWorkerOptions& options) {
  return options.seed.value_or(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)).current_seed());
}

std::string engine_of(const MultiWorkerOptions& options) {
  const auto engine = options.engine == "auto" ? Environment().get("LOCKSTEP_ENGINE").value_or("auto") : options.engine;
  for (const auto* known : {"auto", "shm", "gloo", "mpi", "nccl"})
    if (engine == known) return engine;
  throw Error(ErrorCode::kInvalidArgument,
              str(kName, ": the engine '", engine, "' is not known; there are auto, shm, gloo, mpi and nccl"));
}

// An engine that was named carries everything, but for nccl, which carries GPU tensors alone.
DeviceWish device_wish(const MultiWorkerOptions& options) {
  const auto engine = engine_of(options);
  if (engine == "nccl" || options.communication.implementation == CommunicationImplementation::kNccl) return DeviceWish::kNccl;
  const bool is_free = engine == "auto" && options.communication.implementation == CommunicationImplementation::kAuto;
  return is_free ? DeviceWish::kAuto : DeviceWish::kNone;
}

// The GPUs of the replicas, in order; none when one is on the CPU.
std::vector<int> gpus_of(const std::vector<LogicalDevice>& devices) {
  std::vector<int> gpus;
  for (const auto& device : devices) {
    if (device.type != "GPU") return {};
    if (std::ranges::find(gpus, device.physical_index) == gpus.end()) gpus.push_back(device.physical_index);
  }
  return gpus;
}

JobOptions job_options(const MultiWorkerOptions& options) {
  JobOptions result;
  result.communication = options.communication;
  result.engine = engine_of(options) == "nccl" ? "auto" : engine_of(options);
  result.device_engine = device_wish(options);
  result.is_deterministic = options.deterministic;
  result.stall_warning = options.stall_warning;
  result.join_timeout = options.join_timeout;
  result.secret = options.secret;
  result.tls = options.tls;
  return result;
}

// Every address that is given is one, and nobody else's.
void require_addresses(const ClusterSpec& spec) {
  std::map<std::string, std::string> seen;
  for (const std::string job : {"chief", "worker"})
    for (std::int64_t index = 0; index < task_count(spec, job); ++index) {
      const auto text = spec.task_address(job, index);
      if (text.empty()) continue;  // told when it registers
      const auto who = str(job, " ", index);
      Address::parse(text, who);
      if (const auto [other, is_new] = seen.emplace(text, who); !is_new)
        throw Error(ErrorCode::kInvalidArgument,
                    str(kName, ": ", other->second, " and ", who, " have one address, ", text, "; every task needs its own"));
    }
}

// A cluster of several workers, of which this is one. An evaluator is a cluster of its own.
bool has_others(const ClusterResolver& resolver) {
  const auto spec = resolver.cluster_spec();
  if (spec.empty()) return false;
  const auto type = resolver.task_type();
  if (!type || !resolver.task_id())
    throw Error(ErrorCode::kInvalidArgument, str(kName, ": ", resolver.source(), " describes the cluster ", spec,
                                                 " and not which of its tasks this is; give "
                                                 "both task type and task id"));
  require_addresses(spec);
  if (*resolver.task_id() < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str(kName, ": the task's index is ", *resolver.task_id(), "; indices count from 0"));
  validate_cluster_spec(spec, type, resolver.task_id());
  if (*type == "ps")
    throw Error(ErrorCode::kInvalidArgument, str(kName, ": this task is ps ", *resolver.task_id(),
                                                 ", and parameter servers do not train; start the program as "
                                                 "chief or worker"));
  if (worker_count(spec, type) < 1)
    throw Error(ErrorCode::kInvalidArgument, str(kName, ": the cluster ", spec, " has no chief and no worker"));
  return *type != "evaluator" && worker_count(spec, type) > 1;
}

}  // namespace

// Everything that is known before the replicas are made.
struct MultiWorkerMirroredStrategy::Start {
  Start(std::shared_ptr<const ClusterResolver> given, const MultiWorkerOptions& options)
      : devices(resolve_devices(kName, devices_to_use(options.devices), options.replicas_per_device)),
        resolver(given != nullptr ? std::move(given) : resolve_cluster()) {
    options.communication.validate();
    engine_of(options);
    replicas = {options.communication, options.intra_op_threads, options.seed};
    const bool is_among_others = resolver != nullptr && has_others(*resolver);
    const auto at_least = devices.size() + (is_among_others ? 1 : 0);
    devices = prepare_devices(std::move(devices), options.freed_memory, at_least);
    const auto gpus = gpus_of(devices);
    if (!is_among_others) {
      // Alone there is nothing to carry, but what was asked for must be there.
      const auto wish = device_wish(options);
      if (wish == DeviceWish::kNccl) choose_device_engine(wish, {device_fact(wish, gpus)}, {"this process"});
      return;
    }
    job = std::make_unique<Job>(*resolver, WorkerFacts{static_cast<int>(devices.size()), seed_here(options), gpus},
                                job_options(options));
    replicas.workers = job->workers();
    replicas.seed = job->seed();
    if (options.intra_op_threads == 0) replicas.intra_op_threads = threads_each();
  }

  // The machine's cores are shared by the replicas of all its workers.
  int threads_each() const { return std::max(1, available_cores() / job->replicas_of_machine()); }

  std::vector<LogicalDevice> devices;
  std::shared_ptr<const ClusterResolver> resolver;
  ReplicaSetOptions replicas;
  std::unique_ptr<Job> job;
};

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(std::shared_ptr<const ClusterResolver> cluster_resolver,
                                                         const MultiWorkerOptions& options)
    : MultiWorkerMirroredStrategy(Start(std::move(cluster_resolver), options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Start start)
    : Strategy(std::move(start.devices), start.replicas, default_cross_device_ops()),
      resolver_(std::move(start.resolver)),
      job_(std::move(start.job)) {
  const auto names = extended().worker_devices();
  log_info(str(kName, ": worker ", worker_rank(), " of ", num_workers(), ", ", names.size(), " of ", num_replicas_in_sync(),
               " replicas here, on ", join(", ", names), ", ", replicas().intra_op_threads(), " intra-op threads each",
               job_ != nullptr ? str("; engine: ", job_->engine_choice()) : str("")));
}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() = default;

std::string MultiWorkerMirroredStrategy::task_prefix() const {
  if (resolver_ == nullptr || resolver_->cluster_spec().empty()) return "";
  return str("/job:", *resolver_->task_type(), "/replica:0/task:", *resolver_->task_id());
}

int MultiWorkerMirroredStrategy::num_workers() const noexcept { return job_ == nullptr ? 1 : job_->workers()->layout().size(); }
int MultiWorkerMirroredStrategy::worker_rank() const noexcept { return job_ == nullptr ? 0 : job_->workers()->layout().rank; }

}  // namespace lockstep
