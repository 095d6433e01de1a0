#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/cluster/cluster_spec.h"

namespace lockstep {

// Where a program learns which cluster it belongs to, and which of its tasks it is.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  // Empty: no cluster, the program runs alone. The address of a task that only tells it when it registers is "".
  virtual ClusterSpec cluster_spec() const = 0;

  // The address to reach a task at (by default this one), with "rpc_layer://" before it when there is one.
  virtual std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                             const std::optional<std::string>& rpc_layer = {}) const = 0;

  // How many accelerators of each kind this process sees, for example {"GPU": 2}; CPUs do not count.
  virtual std::map<std::string, int> num_accelerators() const;

  // Which task this is; nothing: not told.
  virtual std::optional<std::string> task_type() const { return task_type_; }
  virtual std::optional<std::int64_t> task_id() const { return task_id_; }
  virtual std::optional<std::string> rpc_layer() const { return rpc_layer_; }
  // Where the cluster runs ("cloud"), if anybody said so.
  const std::optional<std::string>& environment() const noexcept { return environment_; }

  void set_task_type(const std::string& type) { task_type_ = type; }
  void set_task_id(std::int64_t id) { task_id_ = id; }
  void set_rpc_layer(const std::string& layer) { rpc_layer_ = layer; }

  // What it read, for the log: "TF_CONFIG", "Slurm's environment".
  virtual std::string source() const = 0;

 protected:
  ClusterResolver() = default;
  ClusterResolver(const ClusterResolver&) = default;
  ClusterResolver& operator=(const ClusterResolver&) = default;

  // "layer://address", or the address alone.
  std::string url(const std::string& address, const std::optional<std::string>& layer) const;

  // What was given to the resolver, in place of what it reads.
  std::optional<std::string> task_type_;
  std::optional<std::int64_t> task_id_;
  std::optional<std::string> rpc_layer_;
  std::optional<std::string> environment_;
};

}  // namespace lockstep
