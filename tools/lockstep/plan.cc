#include "tools/lockstep/plan.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/address.h"

namespace lockstep::tool {
namespace {

constexpr std::array<const char*, 14> kVariables = {"TF_CONFIG",
                                                    "LOCKSTEP_JOB_SECRET",
                                                    "LOCAL_RANK",
                                                    "LOCAL_WORLD_SIZE",
                                                    "RANK",
                                                    "WORLD_SIZE",
                                                    "GROUP_RANK",
                                                    "MASTER_ADDR",
                                                    "GROUP_WORLD_SIZE",
                                                    "MASTER_PORT",
                                                    "TORCHELASTIC_RESTART_COUNT",
                                                    "TORCHELASTIC_MAX_RESTARTS",
                                                    "TORCHELASTIC_RUN_ID",
                                                    "TORCHELASTIC_USE_AGENT_STORE"};

using Places = std::vector<std::vector<Task>>;

// Where every task listens.
ClusterSpec spec_of(const JobShape& shape, const Places& places, const std::vector<std::vector<int>>& ports,
                    std::optional<int> master_port) {
  std::map<Task, std::string> addresses;
  const Task first{shape.has_chief ? "chief" : "worker", 0};
  for (std::size_t node = 0; node < places.size(); ++node)
    for (std::size_t k = 0; k < places[node].size(); ++k) {
      const auto& task = places[node][k];
      const int port = task == first ? master_port.value_or(ports[node][k]) : ports[node][k];
      addresses[task] = str(Address{shape.nodes[node].address, port});
    }
  ClusterSpec spec;
  for (const char* job : {"chief", "worker", "ps", "evaluator"}) {
    ClusterSpec::Tasks tasks;
    for (const auto& [task, address] : addresses)
      if (task.type == job) tasks.emplace(task.index, address);
    if (!tasks.empty()) spec.set_job(job, std::move(tasks));
  }
  return spec;
}

std::string tf_config(const std::string& cluster, const Task& task) {
  return str(R"({"cluster": )", cluster, R"(, "task": {"type": ")", task.type, R"(", "index": )", task.index, "}}");
}

// torchrun's variables of one that trains.
struct Ranks {
  std::int64_t rank;
  std::int64_t world;
  std::int64_t local_rank;
  std::int64_t local_world;
  std::size_t node;
  std::size_t nodes;
};

void add_ranks(const Ranks& ranks, const Address& master, Variables& variables) {
  variables["RANK"] = str(ranks.rank);
  variables["WORLD_SIZE"] = str(ranks.world);
  variables["LOCAL_RANK"] = str(ranks.local_rank);
  variables["LOCAL_WORLD_SIZE"] = str(ranks.local_world);
  variables["GROUP_RANK"] = str(ranks.node);
  variables["GROUP_WORLD_SIZE"] = str(ranks.nodes);
  variables["MASTER_ADDR"] = master.host;
  variables["MASTER_PORT"] = str(master.port);
}

Variables common_variables(const PlanOptions& options) {
  Variables variables = {{"LOCKSTEP_JOB_SECRET", options.secret},
                         {"TORCHELASTIC_MAX_RESTARTS", str(options.max_restarts)},
                         {"TORCHELASTIC_RUN_ID", options.run_id},
                         {"TORCHELASTIC_USE_AGENT_STORE", "False"}};  // MASTER_PORT is the first task's own
  set_attempt(variables, options.attempt);
  return variables;
}

}  // namespace

bool is_training(const Task& task) { return task.type == "chief" || task.type == "worker"; }

bool has_coordinator(const JobShape& shape) { return shape.has_chief && shape.ps > 0; }

void set_attempt(Variables& environment, int attempt) { environment["TORCHELASTIC_RESTART_COUNT"] = str(attempt); }

bool is_planned_variable(const std::string& name) { return std::ranges::count(kVariables, name) > 0; }

void validate(const JobShape& shape) {
  const auto require = [](bool condition, const std::string& message) {
    if (!condition) throw Error(ErrorCode::kInvalidArgument, message);
  };
  constexpr std::int64_t kMostTasks = 4096;  // TF_CONFIG, which names them all, must fit into an environment variable
  constexpr int kMostOnOneNode = 1024;
  std::int64_t workers = 0;
  require(shape.ps >= 0, "the numbers of tasks must not be negative");
  for (const auto& node : shape.nodes) {
    require(node.workers >= 0, "the numbers of tasks must not be negative");
    require(node.workers <= kMostOnOneNode, str("at most ", kMostOnOneNode, " workers can be started on one machine"));
    workers += node.workers;
  }
  require(workers + (shape.has_chief ? 1 : 0) >= 1, "there must be at least one worker, or a chief");
  require(workers + shape.ps <= kMostTasks,
          str("there are ", workers + shape.ps, " tasks; at most ", kMostTasks, " are possible"));
}

std::vector<std::vector<Task>> place_tasks(const JobShape& shape) {
  const auto nodes = shape.nodes.size();
  Places places(nodes);
  std::int64_t worker = 0;
  if (shape.has_chief) places[0].push_back({"chief", 0});
  for (std::size_t node = 0; node < nodes; ++node)
    for (int k = 0; k < shape.nodes[node].workers; ++k) places[node].push_back({"worker", worker++});
  for (int k = 0; k < shape.ps; ++k) places[static_cast<std::size_t>(k) % nodes].push_back({"ps", k});
  if (shape.has_evaluator) places[nodes - 1].push_back({"evaluator", 0});
  return places;
}

std::vector<std::vector<PlannedTask>> plan_tasks(const JobShape& shape, const std::vector<std::vector<int>>& ports,
                                                 const PlanOptions& options) {
  const auto places = place_tasks(shape);
  const auto spec = spec_of(shape, places, ports, options.master_port);
  const auto cluster = spec.to_json();
  const auto master = Address::parse(spec.task_address(shape.has_chief ? "chief" : "worker", 0), "the first task");
  std::int64_t world = 0;
  for (const auto& tasks : places) world += std::ranges::count_if(tasks, is_training);
  std::int64_t rank = 0;
  std::vector<std::vector<PlannedTask>> planned(places.size());
  for (std::size_t node = 0; node < places.size(); ++node) {
    const auto local = std::ranges::count_if(places[node], is_training);
    std::int64_t local_rank = 0;
    for (const auto& task : places[node]) {
      auto variables = common_variables(options);
      variables["TF_CONFIG"] = tf_config(cluster, task);
      if (is_training(task)) add_ranks({rank++, world, local_rank++, local, node, places.size()}, master, variables);
      planned[node].push_back({task, std::move(variables)});
    }
  }
  return planned;
}

}  // namespace lockstep::tool
