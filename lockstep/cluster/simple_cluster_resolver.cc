#include "lockstep/cluster/simple_cluster_resolver.h"

namespace lockstep {

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec spec, const SimpleClusterOptions& options)
    : spec_(std::move(spec)), master_(options.master), num_accelerators_(options.num_accelerators) {
  task_type_ = options.task_type;
  task_id_ = options.task_id;
  rpc_layer_ = options.rpc_layer;
  environment_ = options.environment;
}

std::string SimpleClusterResolver::master(const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id,
                                          const std::optional<std::string>& rpc_layer) const {
  return url(task_type && task_id ? spec_.task_address(*task_type, *task_id) : master_, rpc_layer);
}

}  // namespace lockstep
