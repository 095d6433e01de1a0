#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_spec.h"
#include "tools/lockstep/process.h"

namespace lockstep::tool {

// One machine's part of a job.
struct NodeShape {
  std::string address = "127.0.0.1";  // where the other machines reach it
  int workers = 1;
};

// What a job is made of. The chief is on the first node, the evaluator on the last, parameter servers go round.
struct JobShape {
  std::vector<NodeShape> nodes = {{}};
  bool has_chief = false;
  int ps = 0;
  bool has_evaluator = false;
};

// Throws kInvalidArgument naming what does not fit together.
void validate(const JobShape& shape);

// True when the chief's program leads the job and all other tasks serve it: Note [jobs with parameter servers].
bool has_coordinator(const JobShape& shape);

// The tasks of each node, those that train first. The chief is the first of all.
std::vector<std::vector<Task>> place_tasks(const JobShape& shape);

// One process to start.
struct PlannedTask {
  Task task;
  Variables environment = {};
};

struct PlanOptions {
  std::string secret = "";
  int attempt = 0;
  int max_restarts = 0;
  std::string run_id = "";
  std::optional<int> master_port = std::nullopt;  // of the first task that trains
};

// The tasks of each node with the variables that tell each who it is: TF_CONFIG, and torchrun's for those that train.
// `ports` has one free port for each task, as place_tasks has them.
std::vector<std::vector<PlannedTask>> plan_tasks(const JobShape& shape, const std::vector<std::vector<int>>& ports,
                                                 const PlanOptions& options);

// Changes a task's variables to those of another start of it.
void set_attempt(Variables& environment, int attempt);

// True for the variables that plan_tasks sets.
bool is_planned_variable(const std::string& name);

// True for the tasks whose end is the job's.
bool is_training(const Task& task);

}  // namespace lockstep::tool
