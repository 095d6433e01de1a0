#pragma once

#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

struct SlurmOptions {
  // Job -> number of tasks; empty: all are workers. Ranks are given to jobs in alphabetical order.
  std::map<std::string, int> jobs = {};
  // Task k of a host listens on port_base + k.
  int port_base = 8888;
  // Nothing: counted from CUDA_VISIBLE_DEVICES, or what this process sees.
  std::optional<int> gpus_per_node = std::nullopt;
  // Nothing: a node's GPUs divided by its most tasks.
  std::optional<int> gpus_per_task = std::nullopt;
  // Nothing: what Slurm says (SLURM_STEP_TASKS_PER_NODE).
  std::optional<int> tasks_per_node = std::nullopt;
  // Sets CUDA_VISIBLE_DEVICES to this task's GPUs, before CUDA is first used.
  bool auto_set_gpu = true;
  std::optional<std::string> rpc_layer = "grpc";
  Environment variables = {};
};

// A job step of Slurm (srun): SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE. Read at
// construction, which throws kFailedPrecondition when one is missing or the numbers do not fit.
class SlurmClusterResolver : public ClusterResolver {
 public:
  explicit SlurmClusterResolver(const SlurmOptions& options = {});

  ClusterSpec cluster_spec() const override { return spec_; }
  std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const override;
  std::map<std::string, int> num_accelerators() const override;
  std::string source() const override { return "Slurm's environment"; }

  // This task's GPUs of its node: [first, first + count).
  std::pair<int, int> gpus() const noexcept { return {first_gpu_, gpus_per_task_}; }

 private:
  ClusterSpec spec_;
  int first_gpu_ = 0;
  int gpus_per_task_ = 0;
};

}  // namespace lockstep
