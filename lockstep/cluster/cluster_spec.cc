#include "lockstep/cluster/cluster_spec.h"

#include <algorithm>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/json.h"

namespace lockstep {

std::ostream& operator<<(std::ostream& out, const Task& task) { return out << task.type << ' ' << task.index; }

ClusterSpec::ClusterSpec(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs) {
  for (const auto& [job, addresses] : jobs) set_job(job, addresses);
}

ClusterSpec ClusterSpec::from_json(const std::string& text) {
  return internal::cluster_spec_from(internal::parse_json(text, "a cluster spec"));
}

std::string ClusterSpec::to_json() const { return internal::to_json(*this).dump(); }

void ClusterSpec::set_job(const std::string& job, Tasks tasks) {
  constexpr std::int64_t kHighest = 1'000'000;
  if (!tasks.empty() && (tasks.begin()->first < 0 || tasks.rbegin()->first > kHighest))
    throw Error(ErrorCode::kOutOfRange, str("job '", job, "' has a task number ",
                                            tasks.begin()->first < 0 ? tasks.begin()->first : tasks.rbegin()->first,
                                            "; tasks are numbered from 0, up to ", kHighest));
  for (auto& [name, existing] : jobs_) {
    if (name != job) continue;
    existing = std::move(tasks);
    return;
  }
  jobs_.emplace_back(job, std::move(tasks));
}

void ClusterSpec::set_job(const std::string& job, const std::vector<std::string>& addresses) {
  Tasks tasks;
  for (const auto& address : addresses) tasks.emplace(static_cast<std::int64_t>(tasks.size()), address);
  set_job(job, std::move(tasks));
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

const ClusterSpec::Tasks* ClusterSpec::find(const std::string& job) const noexcept {
  const auto found = std::ranges::find(jobs_, job, &std::pair<std::string, Tasks>::first);
  return found == jobs_.end() ? nullptr : &found->second;
}

const ClusterSpec::Tasks& ClusterSpec::tasks(const std::string& job) const {
  if (const Tasks* found = find(job)) return *found;
  throw Error(ErrorCode::kInvalidArgument,
              str("there is no job '", job, "' in the cluster; it has ", jobs_.empty() ? "no jobs" : join(", ", jobs())));
}

std::vector<std::int64_t> ClusterSpec::task_indices(const std::string& job) const {
  std::vector<std::int64_t> indices;
  for (const auto& [index, address] : tasks(job)) indices.push_back(index);
  return indices;
}

const std::string& ClusterSpec::task_address(const std::string& job, std::int64_t index) const {
  const auto& all = tasks(job);
  const auto found = all.find(index);
  if (found != all.end()) return found->second;
  throw Error(ErrorCode::kInvalidArgument, str("there is no task ", index, " in job '", job, "', which has ", all.size(),
                                               " tasks: ", join(", ", task_indices(job))));
}

std::vector<std::optional<std::string>> ClusterSpec::job_tasks(const std::string& job) const {
  const auto& all = tasks(job);
  if (all.empty())
    throw Error(ErrorCode::kInvalidArgument, str("job '", job, "' has no tasks; give it addresses or leave it out"));
  std::vector<std::optional<std::string>> list(static_cast<std::size_t>(all.rbegin()->first) + 1);
  for (const auto& [index, address] : all) list[static_cast<std::size_t>(index)] = address;
  return list;
}

bool ClusterSpec::is_dense(const std::string& job) const {
  const auto& all = tasks(job);
  return !all.empty() && all.rbegin()->first + 1 == static_cast<std::int64_t>(all.size());
}

std::vector<Task> ClusterSpec::all_tasks() const {
  std::vector<Task> all;
  for (const auto& [job, tasks] : jobs_)
    for (const auto& [index, address] : tasks) all.push_back({job, index});
  return all;
}

bool ClusterSpec::operator==(const ClusterSpec& other) const {
  return std::map(jobs_.begin(), jobs_.end()) == std::map(other.jobs_.begin(), other.jobs_.end());
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec) { return out << spec.to_json(); }

}  // namespace lockstep
