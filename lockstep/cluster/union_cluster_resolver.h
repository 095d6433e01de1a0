#pragma once

#include <memory>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

// Several resolvers as one: the jobs of all, and for the rest what the first says. A job that several have is put
// together: lists one after the other; tasks with numbers by number, where the same number twice is kInvalidArgument.
class UnionResolver : public ClusterResolver {
 public:
  // Throws kInvalidArgument for no resolver, or a null one.
  explicit UnionResolver(std::vector<std::shared_ptr<const ClusterResolver>> resolvers);

  ClusterSpec cluster_spec() const override;
  std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const override;
  std::map<std::string, int> num_accelerators() const override { return first().num_accelerators(); }
  std::optional<std::string> task_type() const override { return task_type_ ? task_type_ : first().task_type(); }
  std::optional<std::int64_t> task_id() const override { return task_id_ ? task_id_ : first().task_id(); }
  std::optional<std::string> rpc_layer() const override { return rpc_layer_ ? rpc_layer_ : first().rpc_layer(); }
  std::string source() const override;

 private:
  const ClusterResolver& first() const { return *resolvers_.front(); }

  const std::vector<std::shared_ptr<const ClusterResolver>> resolvers_;
};

}  // namespace lockstep
