#include "tools/lockstep/plan.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

// The tasks of a job on one node, those that train first.
std::vector<Task> tasks_of(const JobShape& shape) {
  std::vector<Task> tasks;
  if (shape.has_chief) tasks.push_back({"chief", 0});
  for (int k = 0; k < shape.workers; ++k) tasks.push_back({"worker", k});
  for (int k = 0; k < shape.ps; ++k) tasks.push_back({"ps", k});
  if (shape.has_evaluator) tasks.push_back({"evaluator", 0});
  return tasks;
}

ClusterSpec spec_of(const std::vector<Task>& tasks, const std::vector<int>& ports) {
  ClusterSpec spec;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    auto addresses = spec.has_job(tasks[i].type) ? spec.tasks(tasks[i].type) : ClusterSpec::Tasks();
    addresses.emplace(tasks[i].index, str("127.0.0.1:", ports[i]));
    spec.set_job(tasks[i].type, std::move(addresses));
  }
  return spec;
}

std::string tf_config(const ClusterSpec& spec, const Task& task) {
  return str(R"({"cluster": )", spec.to_json(), R"(, "task": {"type": ")", task.type, R"(", "index": )", task.index, "}}");
}

bool is_training(const Task& task) { return task.type == "chief" || task.type == "worker"; }

}  // namespace

void validate(const JobShape& shape) {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) throw Error(ErrorCode::kInvalidArgument, message);
  };
  constexpr int kMostTasks = 1024;
  require(shape.workers >= 0 && shape.ps >= 0, "the numbers of tasks must not be negative");
  require(shape.workers + (shape.has_chief ? 1 : 0) >= 1, "there must be at least one worker, or a chief");
  require(shape.workers + shape.ps <= kMostTasks, str("at most ", kMostTasks, " tasks can be started on one machine"));
  require(shape.nodes >= 1, str("--nnodes is ", shape.nodes, "; it must be at least 1"));
  require(shape.node_rank >= 0 && shape.node_rank < shape.nodes,
          str("--node-rank is ", shape.node_rank, " of ", shape.nodes, " nodes; ranks count from 0"));
  require(shape.nodes == 1 || !shape.rendezvous.host.empty(),
          "several nodes need --rdzv HOST:PORT, where worker 0 (on node 0) listens; give all nodes the same");
  require(shape.nodes == 1 || (!shape.has_chief && shape.ps == 0 && !shape.has_evaluator),
          "--chief, --ps and --evaluator need one node, where all addresses are known; for several give TF_CONFIG");
}

std::size_t ports_needed(const JobShape& shape) { return tasks_of(shape).size(); }

std::vector<PlannedTask> plan_tasks(const JobShape& shape, const std::vector<int>& ports, const std::string& secret,
                                    int attempt, int max_restarts) {
  const auto tasks = tasks_of(shape);
  const bool is_one_node = shape.nodes == 1;
  const auto spec = is_one_node ? spec_of(tasks, ports) : ClusterSpec();
  const int local = shape.workers + (shape.has_chief ? 1 : 0);
  const auto master = is_one_node ? Address{"127.0.0.1", ports[0]} : shape.rendezvous;
  std::vector<PlannedTask> planned;
  for (const auto& task : tasks) {
    std::map<std::string, std::string> variables = {{"LOCKSTEP_JOB_SECRET", secret},
                                                    {"TORCHELASTIC_RESTART_COUNT", str(attempt)},
                                                    {"TORCHELASTIC_MAX_RESTARTS", str(max_restarts)}};
    if (is_one_node) variables["TF_CONFIG"] = tf_config(spec, task);
    if (is_training(task)) {
      const auto local_rank = task.type == "chief" ? 0 : task.index + (shape.has_chief ? 1 : 0);
      variables["LOCAL_RANK"] = str(local_rank);
      variables["LOCAL_WORLD_SIZE"] = str(local);
      variables["RANK"] = str(shape.node_rank * local + local_rank);
      variables["WORLD_SIZE"] = str(shape.nodes * local);
      variables["GROUP_RANK"] = str(shape.node_rank);
      variables["MASTER_ADDR"] = master.host;
      variables["MASTER_PORT"] = str(master.port);
    }
    const auto number = is_one_node ? task.index : shape.node_rank * local + task.index;
    planned.push_back({{task.type, number}, std::move(variables)});
  }
  return planned;
}

}  // namespace lockstep::tool
