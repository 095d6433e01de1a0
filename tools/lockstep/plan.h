#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/cluster/address.h"
#include "lockstep/cluster/cluster_spec.h"

namespace lockstep::tool {

// What a job is made of, as the command line says it.
struct JobShape {
  int workers = 1;
  bool has_chief = false;
  int ps = 0;
  bool has_evaluator = false;

  // Several nodes: `workers` are this node's, and every node has as many.
  int nodes = 1;
  int node_rank = 0;
  Address rendezvous = {};  // of worker 0; needed for several nodes
};

// One process to start on this machine.
struct PlannedTask {
  Task task;
  std::map<std::string, std::string> environment;
};

// Every task of this node with the variables that tell it who it is: TF_CONFIG (where all addresses are known: on one
// node) and torchrun's. `ports` has one free port for each task of a job on one node.
std::vector<PlannedTask> plan_tasks(const JobShape& shape, const std::vector<int>& ports, const std::string& secret,
                                    int attempt, int max_restarts);

// How many ports plan_tasks needs.
std::size_t ports_needed(const JobShape& shape);

// Throws kInvalidArgument naming what does not fit together.
void validate(const JobShape& shape);

}  // namespace lockstep::tool
