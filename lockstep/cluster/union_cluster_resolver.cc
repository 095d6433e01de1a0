#include "lockstep/cluster/union_cluster_resolver.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// What all of `specs` say about one job.
ClusterSpec::Tasks merged(const std::vector<ClusterSpec>& specs, const std::string& job) {
  const bool are_lists =
      std::ranges::all_of(specs, [&](const ClusterSpec& spec) { return !spec.has_job(job) || spec.is_dense(job); });
  ClusterSpec::Tasks all;
  for (const auto& spec : specs) {
    if (!spec.has_job(job)) continue;
    for (const auto& [index, address] : spec.tasks(job)) {
      const auto number = are_lists ? static_cast<std::int64_t>(all.size()) : index;
      if (!all.emplace(number, address).second)
        throw Error(ErrorCode::kInvalidArgument, str("UnionResolver: two resolvers have a task ", index, " in job '", job,
                                                     "' (", all.at(number), " and ", address, "); number each task once"));
    }
  }
  return all;
}

}  // namespace

UnionResolver::UnionResolver(std::vector<std::shared_ptr<const ClusterResolver>> resolvers) : resolvers_(std::move(resolvers)) {
  if (resolvers_.empty() || std::ranges::count(resolvers_, nullptr) > 0)
    throw Error(ErrorCode::kInvalidArgument, "UnionResolver: it needs at least one resolver, and none may be null");
  environment_ = first().environment();
}

ClusterSpec UnionResolver::cluster_spec() const {
  std::vector<ClusterSpec> specs;
  for (const auto& resolver : resolvers_) specs.push_back(resolver->cluster_spec());
  ClusterSpec result;
  for (const auto& spec : specs)
    for (const auto& job : spec.jobs())
      if (!result.has_job(job)) result.set_job(job, merged(specs, job));
  return result;
}

std::string UnionResolver::master(const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id,
                                  const std::optional<std::string>& rpc_layer) const {
  if (task_type && task_id) return url(cluster_spec().task_address(*task_type, *task_id), rpc_layer);
  return first().master({}, {}, rpc_layer);
}

std::string UnionResolver::source() const {
  std::vector<std::string> sources;
  for (const auto& resolver : resolvers_) sources.push_back(resolver->source());
  return join(" and ", sources);
}

}  // namespace lockstep
