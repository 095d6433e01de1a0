#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/cluster/cluster_spec.h"

// What a task is in its cluster. The chief trains like a worker and also saves; without a chief job worker 0 does. An
// evaluator is a cluster of its own.
//
// All throw kInvalidArgument for a job other than chief, worker, ps and evaluator, for a task that is not in the cluster
// (an evaluator may be absent), and for more than one chief or evaluator. No task type: a process that only looks on.

namespace lockstep {

void validate_cluster_spec(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                           std::optional<std::int64_t> task_id);

// Chief and evaluator always; worker 0 when there is no chief.
bool is_chief(const ClusterSpec& spec, const std::optional<std::string>& task_type = {},
              std::optional<std::int64_t> task_id = {});

// How many tasks train together with this one: chief and workers; for an evaluator the evaluators.
std::int64_t worker_count(const ClusterSpec& spec, const std::optional<std::string>& task_type);

// How many tasks a job has; 0 when there is no such job.
std::int64_t task_count(const ClusterSpec& spec, const std::optional<std::string>& task_type);

// This task's place among those that train together: the chief's is 0, the workers follow.
std::int64_t id_in_cluster(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                           std::optional<std::int64_t> task_id);

// The device prefix of the task that leads: "/job:chief/replica:0/task:0", or worker 0's; "" for an evaluator and for no
// cluster. The coordination leader is ps 0 where there are parameter servers.
std::string collective_leader(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                              std::optional<std::int64_t> task_id);
std::string coordination_leader(const ClusterSpec& spec);

}  // namespace lockstep
