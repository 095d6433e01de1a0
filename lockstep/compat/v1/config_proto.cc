#include "lockstep/compat/v1/config_proto.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/roles.h"

namespace lockstep::compat::v1::internal {

ConfigProto config_for_devices(ConfigProto config) {
  config.isolate_session_state = true;
  return config;
}

ConfigProto config_for_worker(ConfigProto config, const ClusterResolver* resolver, CommunicationImplementation implementation) {
  auto& rewrite = config.graph_options.rewrite_options;
  rewrite.scoped_allocator_optimization = Toggle::kOn;
  rewrite.scoped_allocator_opts.enable_op = {"CollectiveReduce"};
  if (implementation == CommunicationImplementation::kNccl) config.experimental.collective_nccl = true;
  if (resolver == nullptr || resolver->cluster_spec().empty()) return config;
  const auto spec = resolver->cluster_spec();
  const auto type = resolver->task_type();
  const auto id = resolver->task_id();
  if (!type || !id)
    throw Error(ErrorCode::kInvalidArgument, str("update_config_proto: ", resolver->source(), " describes the cluster ", spec,
                                                 " and not which of its tasks this is; give both task type and task id"));
  config.experimental.collective_group_leader = collective_leader(spec, type, id);
  config.device_filters = {str("/job:", *type, "/task:", *id)};  // workers reach each other through collectives alone
  return config;
}

}  // namespace lockstep::compat::v1::internal
