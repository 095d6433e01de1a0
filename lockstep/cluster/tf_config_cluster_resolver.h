#pragma once

#include "lockstep/base/environment.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

struct TFConfigOptions {
  // In place of what TF_CONFIG says.
  std::optional<std::string> task_type = std::nullopt;
  std::optional<std::int64_t> task_id = std::nullopt;
  std::optional<std::string> rpc_layer = std::nullopt;
  std::optional<std::string> environment = std::nullopt;
  Environment variables = {};
};

// The environment variable TF_CONFIG, read at every question:
//
//   {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}
//
// All throw kInvalidArgument, with the place, when it is not valid JSON.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(const TFConfigOptions& options = {});

  ClusterSpec cluster_spec() const override;
  // "" without a cluster and for a cluster of one task.
  std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const override;
  std::map<std::string, int> num_accelerators() const override;
  std::optional<std::string> task_type() const override;
  std::optional<std::int64_t> task_id() const override;
  std::optional<std::string> rpc_layer() const override;
  std::string source() const override { return "TF_CONFIG"; }

 private:
  const Environment variables_;
};

}  // namespace lockstep
