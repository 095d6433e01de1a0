#include "lockstep/serve/task_metrics.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/task_report.h"
#include "lockstep/serve/server.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/variable/variable.h"
#include "tests/support/free_ports.h"
#include "tests/support/scrape.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// What tasks of a job with parameter servers tell about themselves, to `lockstep inspect` and to Prometheus.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::scrape;
using testing::ThrowsCode;

// One of each, with metrics wherever there is room.
struct WatchedJob {
  WatchedJob() {
    std::vector<std::string> addresses;
    for (const int port : testing::free_ports(3)) addresses.push_back(str("127.0.0.1:", port));
    spec = ClusterSpec({{"chief", {addresses[0]}}, {"worker", {addresses[1]}}, {"ps", {addresses[2]}}});
    const ServerOptions options{.metrics = "0"};
    ps = std::make_unique<Server>(task("ps"), options);
    worker = std::make_unique<Server>(task("worker"), options);
  }
  std::shared_ptr<const ClusterResolver> task(const std::string& job) const {
    return std::make_shared<SimpleClusterResolver>(spec, SimpleClusterOptions{.task_type = job, .task_id = 0});
  }
  ps::TaskReport report(const std::string& job) const {
    ps::RpcChannel channel(job, Address::parse(spec.task_address(job, 0), job));
    const auto reply = channel.call(ps::TaskReport::kMethod, {}, Deadline::after(std::chrono::seconds(10)));
    return ps::from_bytes<ps::TaskReport>(reply->fields());
  }

  ClusterSpec spec;
  std::unique_ptr<Server> ps;
  std::unique_ptr<Server> worker;
};

TEST(TaskReport, EveryTaskTellsWhatItDoes) {
  const WatchedJob job;
  ParameterServerStrategy strategy(job.task("chief"));
  EXPECT_EQ(job.report("chief").coordinator->workers, 1U);  // before there is a coordinator
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  Variable v(at::zeros({4}), {.name = "v"});
  for (int i = 0; i < 5; ++i) coordinator.schedule([](Variable to) { to.assign_add(1); }, v);
  coordinator.join();
  const auto server = job.report("ps");
  EXPECT_EQ(server.task(), (Task{"ps", 0}));
  ASSERT_TRUE(server.store && !server.worker && !server.coordinator);
  EXPECT_EQ(server.store->variables, 1U);
  EXPECT_EQ(server.store->bytes, 16U);
  EXPECT_EQ(server.store->updates, 5U);
  const auto worker = job.report("worker");
  ASSERT_TRUE(worker.worker && !worker.store);
  EXPECT_EQ(worker.worker->finished, 5U);
  EXPECT_EQ(worker.worker->function, "");
  EXPECT_EQ(worker.worker->waiting, 0U);
  const auto chief = job.report("chief");
  ASSERT_TRUE(chief.coordinator);
  EXPECT_EQ(chief.coordinator->queued + chief.coordinator->in_flight, 0U);
  EXPECT_TRUE(chief.coordinator->missing.empty());
  EXPECT_EQ(ClusterSpec::from_json(chief.cluster), job.spec);
}

TEST(TaskReport, ACoordinatorNamesWhoIsMissingAndWhatWaits) {
  WatchedJob job;
  ParameterServerStrategy strategy(job.task("chief"));
  ClusterCoordinator coordinator(strategy);
  coordinator.schedule([] {});
  coordinator.join();
  job.worker.reset();
  const auto waits = coordinator.schedule([] { return 7; });
  const auto deadline = Deadline::after(std::chrono::seconds(20));
  while (coordinator.statistics().missing.empty() && !deadline.has_passed()) std::this_thread::yield();
  const auto report = job.report("chief");
  EXPECT_THAT(report.coordinator->missing, ElementsAre("/job:worker/task:0"));
  EXPECT_EQ(report.coordinator->queued + report.coordinator->in_flight, 1U);
  job.worker = std::make_unique<Server>(job.task("worker"));
  EXPECT_EQ(waits.get(), 7);
}

// Training does not depend on it.
TEST(TaskReport, ACoordinatorWhoseAddressIsTakenTrainsAllTheSame) {
  const WatchedJob job;
  const ps::RpcServer taken(Address::parse(job.spec.task_address("chief", 0), "chief"), {});
  ParameterServerStrategy strategy(job.task("chief"));
  ClusterCoordinator coordinator(strategy);
  EXPECT_EQ(coordinator.schedule([] { return 3; }).get(), 3);
}

TEST(TaskMetrics, AreWhatTasksTell) {
  const WatchedJob job;
  ParameterServerStrategy strategy(job.task("chief"));
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  Variable v(at::zeros({4}), {.name = "v"});
  const TaskMetrics metrics("0", coordinator);
  ASSERT_GT(job.ps->metrics_port(), 0);
  EXPECT_THAT(scrape(job.ps->metrics_port()), HasSubstr("\nlockstep_server_updates_total{task=\"ps 0\"} 0\n"));
  for (int i = 0; i < 3; ++i) coordinator.schedule([](Variable to) { to.assign_add(1); }, v);
  coordinator.join();
  const auto server = scrape(job.ps->metrics_port());
  EXPECT_THAT(server, HasSubstr("# TYPE lockstep_server_updates_total counter\n"));
  EXPECT_THAT(server, HasSubstr("\nlockstep_server_updates_total{task=\"ps 0\"} 3\n"));
  EXPECT_THAT(server, HasSubstr("\nlockstep_server_bytes{task=\"ps 0\"} 16\n"));
  EXPECT_THAT(server, Not(HasSubstr("lockstep_worker")));
  const auto worker = scrape(job.worker->metrics_port());
  EXPECT_THAT(worker, HasSubstr("\nlockstep_worker_closures_total{task=\"worker 0\"} 3\n"));
  EXPECT_THAT(worker, HasSubstr("\nlockstep_worker_is_busy{task=\"worker 0\"} 0\n"));
  const auto chief = scrape(metrics.port());
  EXPECT_THAT(chief, HasSubstr("\nlockstep_coordinator_queued{task=\"chief 0\"} 0\n"));
  EXPECT_THAT(chief, HasSubstr("\nlockstep_coordinator_workers_there{task=\"chief 0\"} 1\n"));
}

TEST(TaskReport, ServersTellWhatTheyAreToReplicatedGroups) {
  const testing::ServerCluster cluster(2, 1, {.metrics = "0"});
  ParameterServerStrategy strategy(cluster.chief(), nullptr, {.replication = 2});
  const auto scope = strategy.scope();
  Variable v(at::zeros({4}), {.name = "v"});  // of group 0
  for (int i = 0; i < 3; ++i) v.assign_add(1);
  for (const int index : {0, 1}) {
    ps::RpcChannel channel("ps", Address::parse(cluster.spec().task_address("ps", index), "ps"));
    const auto ask = [&](const char* method, const std::string& fields) {
      return channel.call(method, {fields}, Deadline::after(std::chrono::seconds(10)));
    };
    const auto report = ps::from_bytes<ps::TaskReport>(ask(ps::TaskReport::kMethod, "")->fields());
    ASSERT_EQ(report.groups.size(), 2U);
    const auto& group = report.groups[0];
    EXPECT_EQ(group.group, 0U);
    EXPECT_EQ(group.epoch, 1U);
    EXPECT_EQ(group.role, index == 0 ? ps::GroupRole::kPrimary : ps::GroupRole::kBackup);
    EXPECT_TRUE(group.is_on_two);
    EXPECT_EQ(group.store.variables, 1U);
    EXPECT_EQ(group.store.bytes, 16U);
    EXPECT_EQ(group.store.updates, 3U);
    EXPECT_EQ(report.groups[1].store.variables, 0U);
    EXPECT_EQ(report.all_variables().bytes, 16U);
    const auto described = ps::from_bytes<ps::DescribeReply>(ask(ps::methods::kGroupDescribe, ps::to_bytes(0U))->fields());
    ASSERT_EQ(described.variables.size(), 1U);
    EXPECT_EQ(described.variables[0].description.name, "v");
    EXPECT_EQ(described.variables[0].version, 3U);
  }
}

TEST(TaskMetrics, OfReplicatedGroupsHaveTheirRole) {
  auto role = ps::GroupRole::kBackup;
  const TaskMetrics metrics("0", [&role] {
    ps::TaskReport report{.job = "ps", .index = 1, .store = ps::StoreStatistics{.bytes = 5}};
    report.groups.push_back({.group = 2, .epoch = 7, .role = role, .is_on_two = true});
    report.groups[0].store.bytes = 30;
    return report;
  });
  const std::string of = "{group=\"2\",role=\"";
  const auto backup = scrape(metrics.port());
  EXPECT_THAT(backup, HasSubstr("\nlockstep_server_bytes{task=\"ps 1\"} 35\n"));
  EXPECT_THAT(backup, HasSubstr("\nlockstep_group_bytes" + of + "backup\",task=\"ps 1\"} 30\n"));
  EXPECT_THAT(backup, HasSubstr("\nlockstep_group_epoch" + of + "backup\",task=\"ps 1\"} 7\n"));
  EXPECT_THAT(backup, HasSubstr("\nlockstep_group_bytes" + of + "primary\",task=\"ps 1\"} 0\n"));
  role = ps::GroupRole::kPrimary;
  const auto primary = scrape(metrics.port());
  EXPECT_THAT(primary, HasSubstr("\nlockstep_group_bytes" + of + "primary\",task=\"ps 1\"} 30\n"));
  EXPECT_THAT(primary, HasSubstr("\nlockstep_group_epoch" + of + "backup\",task=\"ps 1\"} 0\n"));
}

TEST(TaskMetrics, StalenessIsCountedByPowersOfTwo) {
  const TaskMetrics metrics("0", [] {
    ps::TaskReport report{.job = "ps", .index = 1, .store = ps::StoreStatistics()};
    report.store->staleness = {5, 4, 0, 2};
    return report;
  });
  const auto text = scrape(metrics.port());
  const std::string name = "\nlockstep_server_stale_gradients_total{task=\"ps 1\",updates=";
  EXPECT_THAT(text, HasSubstr(name + "\"0\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(name + "\"1\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(name + "\"2-3\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(name + "\"4-7\"} 2\n"));
}

TEST(TaskMetrics, EveryTaskOfAMachineHasAPortOfItsOwn) {
  const ClusterSpec spec({{"ps", {"a:1", "a:2"}}, {"worker", {"a:3", "a:4"}}, {"chief", {"a:5"}}});
  const auto at = [&](const Task& task, const std::string& text) {
    return metrics_address(spec, task, Environment::of({{"LOCKSTEP_METRICS", text}}));
  };
  EXPECT_EQ(at({"chief", 0}, "9464"), "9464");
  EXPECT_EQ(at({"worker", 1}, "9464"), "9466");
  EXPECT_EQ(at({"ps", 1}, "9464"), "9468");
  EXPECT_EQ(at({"ps", 0}, "0.0.0.0:9464"), "0.0.0.0:9467");
  EXPECT_EQ(at({"ps", 0}, "[::1]:9464"), "[::1]:9467");
  EXPECT_EQ(at({"ps", 0}, ""), "");
  EXPECT_EQ(metrics_address(spec, {"ps", 0}, Environment::of({})), "");
  EXPECT_THAT([&] { at({"ps", 0}, "yes"); }, ThrowsCode(ErrorCode::kInvalidArgument, "LOCKSTEP_METRICS"));
}

}  // namespace
}  // namespace lockstep
