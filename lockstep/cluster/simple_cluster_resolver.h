#pragma once

#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

struct SimpleClusterOptions {
  std::string master = "";
  std::optional<std::string> task_type = std::nullopt;
  std::optional<std::int64_t> task_id = std::nullopt;
  std::string environment = "";
  std::map<std::string, int> num_accelerators = {};
  std::optional<std::string> rpc_layer = std::nullopt;
};

// A cluster that the program describes itself.
class SimpleClusterResolver : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(ClusterSpec spec, const SimpleClusterOptions& options = {});

  ClusterSpec cluster_spec() const override { return spec_; }
  // The task's address when both its type and number are given, else the master that was given.
  std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const override;
  std::map<std::string, int> num_accelerators() const override { return num_accelerators_; }
  std::string source() const override { return "the program itself"; }

 private:
  const ClusterSpec spec_;
  const std::string master_;
  const std::map<std::string, int> num_accelerators_;
};

}  // namespace lockstep
