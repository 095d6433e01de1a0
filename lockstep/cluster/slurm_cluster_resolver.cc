#include "lockstep/cluster/slurm_cluster_resolver.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/hostlist.h"
#include "lockstep/device/devices.h"

namespace lockstep {
namespace {

std::string require_variable(const Environment& variables, const std::string& name) {
  if (const auto value = variables.get(name)) return *value;
  throw Error(ErrorCode::kFailedPrecondition,
              str(name, " is not in the environment: this process is not part of a Slurm job step; start it with srun"));
}

int require_number(const Environment& variables, const std::string& name) {
  const auto text = require_variable(variables, name);
  if (const auto value = whole_number<int>(text); value && *value >= 0) return *value;
  throw Error(ErrorCode::kInvalidArgument, str(name, " is '", text, "'; it must be a number"));
}

int count_gpus(const Environment& variables) {
  const auto visible = variables.get("CUDA_VISIBLE_DEVICES");
  if (!visible) return static_cast<int>(list_physical_devices("GPU").size());
  return visible->empty() ? 0 : static_cast<int>(std::ranges::count(*visible, ',')) + 1;
}

// Where every rank runs: its address, and its place among its host's tasks.
struct Placement {
  std::string address;
  int on_host;
};

// Hosts stay in Slurm's own order, in which it has given them their ranks. (The peer sorts them by name, which puts n10
// before n8.)
std::vector<Placement> place(const SlurmOptions& options, int num_tasks, int& most_on_host) {
  const auto hosts = expand_hostlist(require_variable(options.variables, "SLURM_STEP_NODELIST"));
  const auto counts = options.tasks_per_node
                          ? std::vector<int>(hosts.size(), *options.tasks_per_node)
                          : expand_tasks_per_node(require_variable(options.variables, "SLURM_STEP_TASKS_PER_NODE"));
  if (counts.size() < hosts.size())
    throw Error(ErrorCode::kInvalidArgument, str("Slurm names ", hosts.size(), " hosts and the tasks of ", counts.size(),
                                                 " of them; the step's environment is not whole"));
  std::vector<Placement> placements;
  most_on_host = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    most_on_host = std::max(most_on_host, counts[host]);
    for (int k = 0; k < counts[host] && static_cast<int>(placements.size()) < num_tasks; ++k)
      placements.push_back({str(hosts[host], ":", options.port_base + k), k});
  }
  return placements;
}

}  // namespace

SlurmClusterResolver::SlurmClusterResolver(const SlurmOptions& options) {
  rpc_layer_ = options.rpc_layer;
  const int rank = require_number(options.variables, "SLURM_PROCID");
  const int num_tasks = require_number(options.variables, "SLURM_STEP_NUM_TASKS");
  const auto jobs = options.jobs.empty() ? std::map<std::string, int>{{"worker", num_tasks}} : options.jobs;
  int asked_for = 0;
  for (const auto& [job, count] : jobs) asked_for += count;
  int most_on_host = 0;
  const auto placements = place(options, num_tasks, most_on_host);
  if (asked_for != num_tasks || static_cast<int>(placements.size()) != num_tasks)
    throw Error(ErrorCode::kFailedPrecondition, str("the jobs have ", asked_for, " tasks, and Slurm has started ", num_tasks,
                                                    " on hosts with room for ", placements.size(), "; they must be equal"));
  if (rank >= num_tasks)
    throw Error(ErrorCode::kFailedPrecondition, str("SLURM_PROCID is ", rank, " in a step of ", num_tasks, " tasks"));

  const int gpus_per_node = options.gpus_per_node ? *options.gpus_per_node : count_gpus(options.variables);
  gpus_per_task_ = options.gpus_per_task.value_or(most_on_host == 0 ? 0 : gpus_per_node / most_on_host);
  if (most_on_host * gpus_per_task_ > gpus_per_node)
    throw Error(ErrorCode::kFailedPrecondition,
                str(most_on_host, " tasks with ", gpus_per_task_, " GPUs each on a node that has ", gpus_per_node,
                    "; ask for fewer GPUs a task or fewer tasks a node"));

  int next = 0;
  for (const auto& [job, count] : jobs) {
    std::vector<std::string> addresses;
    for (int index = 0; index < count; ++index, ++next) {
      addresses.push_back(placements[static_cast<std::size_t>(next)].address);
      if (next != rank) continue;
      task_type_ = job;
      task_id_ = index;
    }
    spec_.set_job(job, addresses);
  }
  first_gpu_ = placements[static_cast<std::size_t>(rank)].on_host * gpus_per_task_;
  if (!options.auto_set_gpu || gpus_per_task_ == 0) return;
  std::vector<int> mine;
  for (int k = 0; k < gpus_per_task_; ++k) mine.push_back(first_gpu_ + k);
  setenv("CUDA_VISIBLE_DEVICES", join(",", mine).c_str(), /*overwrite=*/1);
}

std::string SlurmClusterResolver::master(const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id,
                                         const std::optional<std::string>& rpc_layer) const {
  return url(spec_.task_address(task_type.value_or(*task_type_), task_id.value_or(*task_id_)), rpc_layer);
}

std::map<std::string, int> SlurmClusterResolver::num_accelerators() const {
  if (gpus_per_task_ == 0) return {};
  return {{"GPU", gpus_per_task_}};
}

}  // namespace lockstep
