#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// One process of a cluster: its job ("chief", "worker", "ps", "evaluator") and its number in it.
struct Task {
  std::string type;
  std::int64_t index = 0;

  bool operator==(const Task&) const = default;
  auto operator<=>(const Task&) const = default;
};

// "worker 2"
std::ostream& operator<<(std::ostream& out, const Task& task);

// Who takes part in a cluster: for each job the addresses ("host:port") of its tasks. Task numbers may have gaps.
//
//   ClusterSpec spec({{"chief", {"a:2222"}}, {"worker", {"b:2222", "c:2222"}}});
class ClusterSpec {
 public:
  using Tasks = std::map<std::int64_t, std::string>;

  ClusterSpec() = default;
  ClusterSpec(std::initializer_list<std::pair<std::string, std::vector<std::string>>> jobs);

  // From JSON as TF_CONFIG's "cluster" has it: job -> list of addresses, or -> {index: address}.
  // Throws kInvalidArgument, kOutOfRange for a negative index.
  static ClusterSpec from_json(const std::string& text);
  std::string to_json() const;

  // Adds a job, or replaces it. Throws kOutOfRange for a negative index.
  void set_job(const std::string& job, Tasks tasks);
  void set_job(const std::string& job, const std::vector<std::string>& addresses);

  bool empty() const noexcept { return jobs_.empty(); }
  // In the order in which they were given.
  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job) const noexcept { return find(job) != nullptr; }
  // These throw kInvalidArgument for a job, or a task, that is not there.
  const Tasks& tasks(const std::string& job) const;
  std::int64_t num_tasks(const std::string& job) const { return static_cast<std::int64_t>(tasks(job).size()); }
  std::vector<std::int64_t> task_indices(const std::string& job) const;
  const std::string& task_address(const std::string& job, std::int64_t index) const;
  // By index from 0 on; nothing where there is a gap. Throws kInvalidArgument for a job without tasks.
  std::vector<std::optional<std::string>> job_tasks(const std::string& job) const;
  // True when the job's tasks are numbered 0, 1, ... without a gap.
  bool is_dense(const std::string& job) const;

  // Every task of every job.
  std::vector<Task> all_tasks() const;

  // The same jobs with the same tasks, in whatever order.
  bool operator==(const ClusterSpec& other) const;

 private:
  const Tasks* find(const std::string& job) const noexcept;

  std::vector<std::pair<std::string, Tasks>> jobs_;
};

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec);

}  // namespace lockstep
