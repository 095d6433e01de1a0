#include "lockstep/cluster/resolve.h"

#include <algorithm>
#include <array>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/json.h"
#include "lockstep/cluster/ranked_cluster_resolver.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/cluster/slurm_cluster_resolver.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"

namespace lockstep {
namespace {

using Resolver = std::shared_ptr<const ClusterResolver>;

// One way to be told about a cluster: a variable that only it sets, and how to read the rest.
struct Source {
  const char* name;
  const char* variable;
  Resolver (*resolve)(const Environment&);
};

template <typename R>
Resolver from_environment(const Environment& variables) {
  return std::make_shared<R>(variables);
}

constexpr std::array<Source, 7> kSources = {{
    {"TF_CONFIG", "TF_CONFIG",
     [](const Environment& variables) -> Resolver {
       // A program that was told something must not train alone because it was told wrong.
       if (const auto text = variables.get("TF_CONFIG").value_or(""); !internal::parse_json(text, "TF_CONFIG").is_object())
         throw Error(ErrorCode::kInvalidArgument,
                     str("TF_CONFIG is ", text.substr(0, 60), "; it must be a JSON object with 'cluster' and 'task'"));
       return std::make_shared<TFConfigClusterResolver>(TFConfigOptions{.variables = variables});
     }},
    {"torchrun", "WORLD_SIZE", from_environment<TorchrunClusterResolver>},
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", from_environment<MpiClusterResolver>},
    {"Slurm", "SLURM_STEP_NUM_TASKS",
     [](const Environment& variables) -> Resolver {
       return std::make_shared<SlurmClusterResolver>(SlurmOptions{.variables = variables});
     }},
    {"mpirun (MPICH)", "PMI_SIZE", from_environment<MpiClusterResolver>},
    {"Kubernetes", "LOCKSTEP_K8S_SERVICE", from_environment<KubernetesClusterResolver>},
    {"Kubernetes", "LOCKSTEP_K8S_REPLICAS", from_environment<KubernetesClusterResolver>},
}};

// How many train together, as a source says; 1: it describes no cluster.
std::int64_t size_of(const ClusterSpec& spec) {
  return spec.empty() ? 1 : std::max<std::int64_t>(1, task_count(spec, "chief") + task_count(spec, "worker"));
}

// Whoever started this program as one of several must not find it training alone because something else says so.
void require_nobody_else(const Resolver& chosen, const Source* next, const Environment& variables) {
  if (size_of(chosen->cluster_spec()) > 1 || chosen->task_type().value_or("") == "evaluator") return;
  if (chosen->cluster_spec().empty() && chosen->task_id().value_or(0) > 0)
    throw Error(ErrorCode::kInvalidArgument, str(chosen->source(), " says that this is task ", *chosen->task_id(),
                                                 " and describes no cluster; give it one, or unset it"));
  for (; next != kSources.end(); ++next) {
    if (!variables.get(next->variable)) continue;
    const auto other = next->resolve(variables);
    if (const auto size = size_of(other->cluster_spec()); size > 1)
      throw Error(ErrorCode::kFailedPrecondition,
                  str(chosen->source(), " says that this program runs alone, and ", other->source(), " that it is one of ",
                      size, "; unset what is not meant, or give the strategy a resolver"));
  }
}

}  // namespace

std::shared_ptr<const ClusterResolver> resolve_cluster(const Environment& variables) {
  std::vector<std::string> looked_at;
  for (const auto& source : kSources) {
    if (looked_at.empty() || looked_at.back() != source.name) looked_at.emplace_back(source.name);
    if (!variables.get(source.variable)) continue;
    auto resolver = source.resolve(variables);
    const auto spec = resolver->cluster_spec();
    require_nobody_else(resolver, &source + 1, variables);
    log_info(str("cluster: looked at ", join(", ", looked_at), "; found by ", resolver->source(), ": ",
                 spec.empty() ? str("no cluster")
                              : str(spec, ", and that this is ", resolver->task_type().value_or("no task"), " ",
                                    resolver->task_id() ? std::to_string(*resolver->task_id()) : "")));
    return resolver;
  }
  log_info(str("cluster: looked at ", join(", ", looked_at), "; none describes a cluster: this program runs alone"));
  return nullptr;
}

}  // namespace lockstep
