#include "lockstep/serve/task_metrics.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/address.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/ps/task_report.h"

namespace lockstep {
namespace {

constexpr const char* kVariable = "LOCKSTEP_METRICS";

// Sets the metrics of one task.
class Numbers {
 public:
  Numbers(MetricsRegistry& registry, const Task& task) : registry_(registry), labels_{{"task", str(task)}} {}

  void gauge(const char* name, const char* help, double value) { registry_.gauge(name, help, labels_).set(value); }
  void counter(const char* name, const char* help, std::uint64_t total) {
    raise(registry_.counter(name, help, labels_), total);
  }
  // The same of one of the task's replicated groups.
  Numbers of(const ps::GroupReport& group) const {
    auto labels = labels_;
    labels["group"] = str(group.group);
    labels["role"] = name_of(group.role);
    return Numbers(registry_, std::move(labels));
  }
  // Its class: "0", "1", "2-3", "4-7", ...
  void staleness(std::size_t power, std::uint64_t total) {
    auto labels = labels_;
    const auto from = power == 0 ? 0 : std::uint64_t{1} << (power - 1);
    labels["updates"] = power < 2 ? str(from) : str(from, "-", 2 * from - 1);
    raise(registry_.counter("lockstep_server_stale_gradients_total",
                            "Gradients by the updates that came between the values they were made of and them.", labels),
          total);
  }

 private:
  Numbers(MetricsRegistry& registry, MetricsRegistry::Labels labels) : registry_(registry), labels_(std::move(labels)) {}

  static void raise(Counter& counter, std::uint64_t total) { counter.add(static_cast<double>(total) - counter.value()); }

  MetricsRegistry& registry_;
  const MetricsRegistry::Labels labels_;
};

void set(Numbers& numbers, const ps::StoreStatistics& store) {
  numbers.gauge("lockstep_server_variables", "Variables, or parts of them.", static_cast<double>(store.variables));
  numbers.gauge("lockstep_server_bytes", "Bytes of variables.", static_cast<double>(store.bytes));
  numbers.gauge("lockstep_server_staged_bytes", "Bytes of pieces that wait for their request.",
                static_cast<double>(store.staged_bytes));
  numbers.gauge("lockstep_server_updates_per_second", "Updates in a second of the last ten.", store.updates_per_second);
  numbers.gauge("lockstep_server_requests", "Requests being worked on, or waiting for a variable.",
                static_cast<double>(store.requests));
  numbers.gauge("lockstep_server_clients", "Tasks that have sent updates.", static_cast<double>(store.clients));
  numbers.counter("lockstep_server_updates_total", "Updates done.", store.updates);
  numbers.counter("lockstep_server_reads_total", "Variables, or parts of them, that were read.", store.reads);
  for (std::size_t power = 0; power < store.staleness.size(); ++power) numbers.staleness(power, store.staleness[power]);
}

void set_role(Numbers numbers, const ps::GroupReport& group) {
  numbers.gauge("lockstep_group_epoch", "The number of the group's view; 0: the server is not this to it.",
                static_cast<double>(group.epoch));
  numbers.gauge("lockstep_group_is_on_two", "1 while the group is on two servers, all of it.", group.is_on_two ? 1 : 0);
  numbers.gauge("lockstep_group_variables", "Replicated variables, or parts of them.",
                static_cast<double>(group.store.variables));
  numbers.gauge("lockstep_group_bytes", "Bytes of replicated variables.", static_cast<double>(group.store.bytes));
  numbers.gauge("lockstep_group_updates", "Updates done since the server has the group.",
                static_cast<double>(group.store.updates));
}

// In its role, and zeros in others, which it may have had before.
void set(Numbers& numbers, const ps::GroupReport& group) {
  for (const auto role : {ps::GroupRole::kPrimary, ps::GroupRole::kBackup}) {
    const ps::GroupReport nothing{.group = group.group, .role = role};
    const auto& one = role == group.role ? group : nothing;
    set_role(numbers.of(one), one);
  }
}

void set(Numbers& numbers, const ps::closures::Status& worker) {
  const auto age = std::chrono::duration<double>(std::chrono::nanoseconds(worker.nanoseconds)).count();
  numbers.gauge("lockstep_worker_is_busy", "1 while a closure runs.", worker.function.empty() ? 0 : 1);
  numbers.gauge("lockstep_worker_closure_seconds", "How long the closure that runs has run.", age);
  numbers.gauge("lockstep_worker_waiting", "Closures that have come and wait.", static_cast<double>(worker.waiting));
  numbers.gauge("lockstep_worker_values", "Per-worker values.", static_cast<double>(worker.resources));
  numbers.counter("lockstep_worker_closures_total", "Closures that ended well.", worker.finished);
  numbers.counter("lockstep_worker_failed_closures_total", "Closures that failed.", worker.failed);
}

void set(Numbers& numbers, const ps::CoordinatorStatistics& coordinator) {
  numbers.gauge("lockstep_coordinator_queued", "Closures that wait for a worker.", static_cast<double>(coordinator.queued));
  numbers.gauge("lockstep_coordinator_in_flight", "Closures that workers have.", static_cast<double>(coordinator.in_flight));
  numbers.gauge("lockstep_coordinator_workers", "Workers of the job.", static_cast<double>(coordinator.workers));
  numbers.gauge("lockstep_coordinator_workers_there", "Those of them that are there.",
                static_cast<double>(coordinator.workers - coordinator.missing.size()));
}

std::shared_ptr<MetricsRegistry> registry_of(std::function<ps::TaskReport()> report) {
  auto registry = std::make_shared<MetricsRegistry>();
  registry->set_refresh([of = registry.get(), report = std::move(report)] {
    const auto now = report();
    Numbers numbers(*of, now.task());
    if (now.store) set(numbers, now.all_variables());
    for (const auto& group : now.groups) set(numbers, group);
    if (now.worker) set(numbers, *now.worker);
    if (now.coordinator) set(numbers, *now.coordinator);
  });
  return registry;
}

}  // namespace

TaskMetrics::TaskMetrics(const std::string& address, std::function<ps::TaskReport()> report)
    : TaskMetrics(address, registry_of(std::move(report))) {}

TaskMetrics::TaskMetrics(const std::string& address, const ClusterCoordinator& coordinator)
    : TaskMetrics(address, [coordinator] { return ps::TaskReport{.job = "chief", .coordinator = coordinator.statistics()}; }) {}

std::string metrics_address(const ClusterSpec& cluster, const Task& task, const Environment& environment) {
  const auto text = environment.get(kVariable).value_or("");
  if (text.empty()) return "";
  std::int64_t number = 0;
  for (const std::string job : {"chief", "worker", "ps"}) {
    if (!cluster.has_job(job)) continue;
    const auto indices = cluster.task_indices(job);
    const auto found = std::ranges::find(indices, task.index);
    if (job == task.type) number += found - indices.begin();
    if (job == task.type) break;
    number += static_cast<std::int64_t>(indices.size());
  }
  if (const auto port = whole_number<int>(text)) return str(*port + number);
  const auto base = Address::parse(text, kVariable);
  return str(Address{base.host, base.port + static_cast<int>(number)});
}

}  // namespace lockstep
