#include "lockstep/serve/server.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <thread>

#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/task_error.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Servers, a strategy and its coordinator, all in one process.

namespace lockstep {
namespace {

using testing::code_of;
using testing::ServerCluster;
using testing::ThrowsCode;

TEST(Server, KeepsVariablesThatClosuresReadAndWrite) {
  const ServerCluster cluster(/*ps=*/2, /*workers=*/2);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  std::optional<Variable> v, w;
  {
    const auto scope = strategy.scope();
    v.emplace(at::zeros({3}), VariableOptions{.name = "v"});
    w.emplace(1.0, VariableOptions{.name = "w"});
  }
  EXPECT_THAT(v->devices(), ::testing::ElementsAre("/job:ps/replica:0/task:0/device:CPU:0"));
  EXPECT_THAT(w->devices(), ::testing::ElementsAre("/job:ps/replica:0/task:1/device:CPU:0"));
  std::vector<RemoteValue<at::Tensor>> results;
  for (int i = 0; i < 20; ++i)
    results.push_back(coordinator.schedule(
        [](Variable a, const Variable& b, double x) {
          a.assign_add(at::full({3}, x) * b.value());
          return at::scalar_tensor(2 * x);
        },
        *v, *w, 0.5));
  coordinator.join();
  EXPECT_TRUE(coordinator.done());
  EXPECT_TRUE(at::equal(v->value(), at::full({3}, 10.0F)));
  for (const auto& result : coordinator.fetch(results)) EXPECT_EQ(result.item<double>(), 1.0);
  EXPECT_TRUE(ClusterCoordinator(strategy) == coordinator);
}

TEST(Server, ClosuresComputeWithTheThreadsOfWhoMadeTheServer) {
  const auto before = at::get_num_threads();
  at::set_num_threads(2);
  std::thread([] { at::set_num_threads(1); }).join();  // what threads begin with from now on
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  EXPECT_EQ(coordinator.schedule([] { return at::get_num_threads(); }).get(), 2);
  at::set_num_threads(before);
}

TEST(Server, DividesVariablesOverServers) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(2));
  const auto scope = strategy.scope();
  Variable v(at::arange(10, at::kFloat).reshape({5, 2}), {.name = "v"});
  Variable scalar(3.0);
  ASSERT_EQ(v.shards().size(), 2U);
  EXPECT_TRUE(scalar.shards().empty());
  EXPECT_EQ(v.shards()[0].name(), "v/part_0");
  EXPECT_TRUE(at::equal(v.shards()[0].value(), at::arange(6, at::kFloat).reshape({3, 2})));
  EXPECT_TRUE(at::equal(v.shards()[1].value(), at::arange(6, 10, at::kFloat).reshape({2, 2})));
  EXPECT_TRUE(at::equal(v.value(), at::arange(10, at::kFloat).reshape({5, 2})));
  v.assign_add(at::ones({5, 2}));
  v.scatter_update({at::zeros({2, 2}), at::tensor({4, 0})});
  EXPECT_TRUE(at::equal(v.rows(at::tensor({4, 1, 0})), at::tensor({0.0F, 0.0F, 3.0F, 4.0F, 0.0F, 0.0F}).reshape({3, 2})));
  EXPECT_THAT(scalar.devices(), ::testing::ElementsAre("/job:ps/replica:0/task:0/device:CPU:0"));
}

TEST(Server, AReadIsRememberedWhereThatIsWanted) {
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  const auto scope = strategy.scope();
  Variable v(1.0);
  {
    const ps::CachedReads cached;
    EXPECT_EQ(v.value().item<float>(), 1);
    v.assign(5);
    EXPECT_EQ(v.value().item<float>(), 1);
    EXPECT_EQ(code_of([] { ps::CachedReads(); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(v.value().item<float>(), 5);
}

TEST(Server, OfRememberedReadsAShardIsNotTheWhole) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(2));
  const auto scope = strategy.scope();
  Variable v(at::arange(8, at::kFloat).reshape({4, 2}), {.name = "v"});
  const auto whole = at::arange(8, at::kFloat).reshape({4, 2});
  for (const bool is_shard_first : {false, true}) {
    const ps::CachedReads cached;
    if (is_shard_first) {
      EXPECT_TRUE(at::equal(v.shards()[0].value(), whole.slice(0, 0, 2)));
    }
    EXPECT_TRUE(at::equal(v.value(), whole));
    v.assign_add(at::ones({4, 2}));
    EXPECT_TRUE(at::equal(v.rows(at::tensor({3, 0})), whole.index_select(0, at::tensor({3, 0}))));
    EXPECT_TRUE(at::equal(v.shards()[0].value(), is_shard_first ? whole.slice(0, 0, 2) : whole.slice(0, 0, 2) + 1));
    v.assign(whole);
  }
}

// The servers keep what there is: who makes the same variables again finds them.
TEST(Server, ACoordinatorThatComesBackFindsItsVariables) {
  const ServerCluster cluster(2, 1);
  for (const float expected : {1.0F, 2.0F, 3.0F}) {
    ParameterServerStrategy strategy(cluster.chief());
    const auto scope = strategy.scope();
    Variable v(at::ones({2}), {.name = "v"});
    EXPECT_EQ(v.value()[0].item<float>(), expected);
    v.assign_add(1);
  }
}

TEST(Server, KeepsVariablesOnTwoServersWhereThatIsWanted) {
  const ServerCluster cluster(2, 2);
  ParameterServerStrategy strategy(cluster.chief(), nullptr, {.replication = 2});
  ClusterCoordinator coordinator(strategy);
  std::optional<Variable> v, w;
  {
    const auto scope = strategy.scope();
    v.emplace(at::zeros({3}), VariableOptions{.name = "v"});
    w.emplace(at::zeros({3}), VariableOptions{.name = "w"});
  }
  for (int i = 0; i < 20; ++i)
    coordinator.schedule(
        [](Variable a, Variable b) {
          a.assign_add(1);
          b.assign_add(2);
        },
        *v, *w);
  coordinator.join();
  EXPECT_TRUE(at::equal(v->value(), at::full({3}, 20.0F)));
  EXPECT_TRUE(at::equal(w->value(), at::full({3}, 40.0F)));
  // Their servers are replicated, for every coordinator.
  EXPECT_EQ(code_of([&] { ParameterServerStrategy(cluster.chief()); }), ErrorCode::kFailedPrecondition);
}

// SPEC 7.6: not that the variable is unknown, but what happened, and what helps.
TEST(Server, StartedAgainWithoutItsVariablesIsSaidToBeLost) {
  ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  std::optional<Variable> v, w;
  {
    const auto scope = strategy.scope();
    v.emplace(at::zeros({3}), VariableOptions{.name = "v"});
    w.emplace(at::zeros({3}), VariableOptions{.name = "w"});
  }
  const auto add = [&](const Variable& to) { coordinator.schedule([](Variable one) { one.assign_add(1); }, to); };
  add(*w);
  coordinator.join();
  cluster.stop("ps", 1);
  cluster.start("ps", 1);
  EXPECT_THAT([&] { w->value(); }, ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:1 was started again", "'w'",
                                              "replication = 2", "snapshot_folder", "restore a checkpoint"));
  add(*w);
  try {
    coordinator.join();
    FAIL() << "the closure found its variable";
  } catch (const PsUnavailable& error) {
    EXPECT_EQ(error.task(), "/job:ps/task:1");
    EXPECT_NE(std::string(error.what()).find("was started again"), std::string::npos);
  }
  add(*v);  // the other one is as it was
  coordinator.join();
  EXPECT_TRUE(at::equal(v->value(), at::ones({3})));
  // A name that was never there is only that.
  ParameterServerStrategy again(cluster.chief());
  EXPECT_EQ(code_of([&] { again.variables()->client().read({{1, "x", at::empty({3})}}); }), ErrorCode::kNotFound);
}

TEST(ParameterServerStrategy, RefusesReplicationThatCannotBe) {
  const ServerCluster cluster(1, 1);
  for (const int replication : {0, 2, 3})
    EXPECT_THAT([&] { ParameterServerStrategy(cluster.chief(), nullptr, {.replication = replication}); },
                ThrowsCode(ErrorCode::kInvalidArgument, "replication", "1 parameter servers"));
}

TEST(ParameterServerStrategy, RefusesClustersItCannotUse) {
  const auto with = [](const ClusterSpec& spec, const std::string& type = "chief") {
    return code_of([&] {
      ParameterServerStrategy(
          std::make_shared<SimpleClusterResolver>(spec, SimpleClusterOptions{.task_type = type, .task_id = 0}));
    });
  };
  EXPECT_EQ(with(ClusterSpec()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with({{"chief", {"a:1"}}, {"worker", {"b:1"}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with({{"chief", {"a:1"}}, {"ps", {"b:1"}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with({{"chief", {"a:1"}}, {"worker", {"b:1"}}, {"ps", {"c:1"}}}, "worker"), ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      [] {
        ParameterServerStrategy(
            std::make_shared<SimpleClusterResolver>(
                ClusterSpec({{"chief", {"127.0.0.1:1"}}, {"worker", {"127.0.0.1:1"}}, {"ps", {"127.0.0.1:1"}}}),
                SimpleClusterOptions{.task_type = "chief", .task_id = 0}),
            nullptr, {.join_timeout = std::chrono::milliseconds(200)});
      },
      ThrowsCode(ErrorCode::kDeadlineExceeded, "/job:worker/task:0"));
}

TEST(Server, IsOnlyAPsOrAWorker) {
  EXPECT_EQ(code_of([] {
              Server(std::make_shared<SimpleClusterResolver>(
                  ClusterSpec({{"chief", {"127.0.0.1:1"}}, {"worker", {"127.0.0.1:1"}}, {"ps", {"127.0.0.1:1"}}}),
                  SimpleClusterOptions{.task_type = "chief", .task_id = 0}));
            }),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
