#include "lockstep/cluster/roles.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, 4> kJobs = {"chief", "worker", "evaluator", "ps"};

bool is_known(const std::string& job) { return std::ranges::count(kJobs, job) > 0; }

// The device prefix of task 0 of the first of these jobs that the cluster has.
std::string first_task_of_any(const ClusterSpec& spec, const std::vector<std::string>& jobs) {
  for (const auto& job : jobs)
    if (task_count(spec, job) > 0) return str("/job:", job, "/replica:0/task:0");
  throw Error(ErrorCode::kInvalidArgument,
              str("no task of the cluster can lead it: it has no ", join(", no ", jobs), ": ", spec));
}

std::string text_of(const std::optional<std::string>& type) { return type ? str("'", *type, "'") : "(none)"; }

}  // namespace

void validate_cluster_spec(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                           std::optional<std::int64_t> task_id) {
  for (const auto& job : spec.jobs())
    if (!is_known(job))
      throw Error(ErrorCode::kInvalidArgument,
                  str("the cluster has a job '", job, "'; jobs are ", join(", ", kJobs), " (in ", spec, ")"));
  if (task_type && !is_known(*task_type))
    throw Error(ErrorCode::kInvalidArgument, str("this task is a '", *task_type, "'; task types are ", join(", ", kJobs)));
  if (task_type && !spec.has_job(*task_type) && *task_type != "evaluator")
    throw Error(ErrorCode::kInvalidArgument, str("this task is a '", *task_type, "', and the cluster has no such job: ", spec));
  for (const char* job : {"chief", "evaluator"})
    if (task_count(spec, job) > 1)
      throw Error(ErrorCode::kInvalidArgument,
                  str("the cluster has ", task_count(spec, job), " tasks in job '", job, "'; it can have one"));
  if (task_type && task_id && *task_id >= task_count(spec, task_type) && spec.has_job(*task_type))
    throw Error(ErrorCode::kInvalidArgument, str("this task is ", *task_type, " ", *task_id, ", and the cluster has ",
                                                 task_count(spec, task_type), " of them, numbered from 0"));
}

bool is_chief(const ClusterSpec& spec, const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id) {
  validate_cluster_spec(spec, task_type, task_id);
  if (task_type == "chief" || task_type == "evaluator") return true;
  return task_type == "worker" && task_id == 0 && !spec.has_job("chief");
}

std::int64_t task_count(const ClusterSpec& spec, const std::optional<std::string>& task_type) {
  return task_type && spec.has_job(*task_type) ? spec.num_tasks(*task_type) : 0;
}

std::int64_t worker_count(const ClusterSpec& spec, const std::optional<std::string>& task_type) {
  validate_cluster_spec(spec, task_type, 0);
  if (task_type == "evaluator") return spec.num_tasks("evaluator");
  if (task_type == "chief" || task_type == "worker") return task_count(spec, "chief") + task_count(spec, "worker");
  throw Error(ErrorCode::kInvalidArgument,
              str("a task of type ", text_of(task_type), " does not train with others; chiefs, workers and evaluators do"));
}

std::int64_t id_in_cluster(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                           std::optional<std::int64_t> task_id) {
  validate_cluster_spec(spec, task_type, task_id);
  if (task_type == "chief") return 0;
  if (task_type == "worker" && task_id) return *task_id + task_count(spec, "chief");
  if (task_type == "evaluator" && task_id) return *task_id;
  throw Error(ErrorCode::kInvalidArgument, str("a task of type ", text_of(task_type),
                                               " has no place among the training tasks; chiefs, workers and evaluators do"));
}

std::string collective_leader(const ClusterSpec& spec, const std::optional<std::string>& task_type,
                              std::optional<std::int64_t> task_id) {
  if (spec.empty()) return "";
  validate_cluster_spec(spec, task_type, task_id);
  if (task_type == "evaluator") return "";
  return first_task_of_any(spec, {"chief", "worker"});
}

std::string coordination_leader(const ClusterSpec& spec) {
  if (spec.empty()) return "";
  return first_task_of_any(spec, {"ps", "chief", "worker"});
}

}  // namespace lockstep
