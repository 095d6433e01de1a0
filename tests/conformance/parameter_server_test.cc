#include <ATen/ATen.h>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/conformance/testing.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"

// Where the variables of a ParameterServerStrategy are, and how they are divided. Servers and workers are in this process.

namespace lockstep::testing {
namespace {

std::string on_ps(int index) { return str("/job:ps/replica:0/task:", index, "/device:CPU:0"); }

// A cluster and its strategy.
struct Placed {
  explicit Placed(int ps, Partitioner partitioner = nullptr)
      : cluster(ps, /*workers=*/2), strategy(cluster.chief(), std::move(partitioner)) {}

  ServerCluster cluster;
  ParameterServerStrategy strategy;
};

// The values of all shards, one after the other; and of a variable that is whole, it alone.
std::vector<Floats> shards(const Variable& variable) {
  std::vector<Floats> all;
  for (const auto& shard : variable.shards()) all.push_back(floats(shard.value()));
  if (all.empty()) all.push_back(floats(variable.value()));
  return all;
}

TEST(ParameterServerPlacement, GoesRoundTheServers) {
  Placed job(3);
  const Variable v1(0.0);
  const auto scope = job.strategy.scope();
  const Variable v2(0.0), v3(0.0), v4(0.0);
  EXPECT_FALSE(v1.is_remote());
  EXPECT_THAT(v2.devices(), ElementsAre(on_ps(0)));
  EXPECT_THAT(v3.devices(), ElementsAre(on_ps(1)));
  EXPECT_THAT(v4.devices(), ElementsAre(on_ps(2)));
  EXPECT_THAT(Variable(0.0).devices(), ElementsAre(on_ps(0)));
}

// Not the number of workers, which train asynchronously.
TEST(ParameterServerReplicas, AreTheDevicesOfOneWorker) {
  for (const int replicas : {1, 2, 3}) {
    const ServerCluster cluster(1, /*workers=*/2, {.devices = cpus(replicas)});
    ParameterServerStrategy strategy(cluster.chief());
    EXPECT_EQ(strategy.num_replicas_in_sync(), replicas);
    std::vector<std::string> names;
    for (int i = 0; i < replicas; ++i) names.push_back(str("/device:CPU:", i));
    EXPECT_EQ(strategy.extended().worker_devices(), names);
    EXPECT_EQ(strategy.replicas().size(), 1);  // the coordinator's own
  }
}

TEST(ParameterServerPlacement, LeavesVariablesWholeWithoutAPartitioner) {
  Placed job(2);
  const auto scope = job.strategy.scope();
  const Variable v(vec({0, 1, 2, 3}));
  EXPECT_TRUE(v.shards().empty());
  EXPECT_THAT(floats(v.value()), ElementsAre(0, 1, 2, 3));
}

TEST(ParameterServerPlacement, DividesRowsAsEvenlyAsItCan) {
  Placed job(2, FixedShardsPartitioner(2));
  const auto scope = job.strategy.scope();
  const Variable v(at::arange(10, at::kFloat).reshape({5, 2}));
  EXPECT_THAT(v.devices(), ElementsAre(on_ps(0), on_ps(1)));
  EXPECT_THAT(shards(v), ElementsAre(Floats{0, 1, 2, 3, 4, 5}, Floats{6, 7, 8, 9}));
  EXPECT_EQ(v.shards()[1].sizes(), at::IntArrayRef({2, 2}));
}

TEST(ParameterServerPlacement, HasNoMoreShardsThanRows) {
  Placed job(2, FixedShardsPartitioner(4));
  const auto scope = job.strategy.scope();
  const Variable v(vec({0, 1, 2}));
  EXPECT_THAT(shards(v), ElementsAre(Floats{0}, Floats{1}, Floats{2}));
  EXPECT_THAT(v.devices(), ElementsAre(on_ps(0), on_ps(1), on_ps(0)));
}

TEST(ParameterServerPlacement, OfOneShardIsAWholeVariable) {
  Placed job(2, MinSizePartitioner({.min_shard_bytes = 64 << 20, .max_shards = 2}));
  const auto scope = job.strategy.scope();
  const Variable a(at::zeros({10}, at::kLong)), b(at::zeros({10}, at::kLong));
  EXPECT_TRUE(a.shards().empty() && b.shards().empty());
  EXPECT_THAT(a.devices(), ElementsAre(on_ps(0)));
  EXPECT_THAT(b.devices(), ElementsAre(on_ps(1)));
}

TEST(ParameterServerPlacement, AsksAnInitializerForEachShard) {
  Placed job(2, FixedShardsPartitioner(2));
  const auto scope = job.strategy.scope();
  std::vector<Ints> asked;
  const Variable v(
      [&](const Ints& shape, const Ints& offset) {
        asked.push_back(shape);
        asked.push_back(offset);
        return at::eye(4).narrow(0, offset.at(0), shape.at(0));
      },
      {4, 4}, at::kFloat);
  EXPECT_THAT(asked, ElementsAre(Ints{2, 4}, Ints{0, 0}, Ints{2, 4}, Ints{2, 0}));
  EXPECT_THAT(shards(v), ElementsAre(Floats{1, 0, 0, 0, 0, 1, 0, 0}, Floats{0, 0, 1, 0, 0, 0, 0, 1}));
}

TEST(ParameterServerPlacement, DividesWhatAFunctionGivesWithoutAWordOnItsShape) {
  Placed job(2, FixedShardsPartitioner(2));
  const auto scope = job.strategy.scope();
  int calls = 0;
  const Variable v([&] {
    ++calls;
    return vec({0, 1, 2, 3});
  });
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(shards(v), ElementsAre(Floats{0, 1}, Floats{2, 3}));
}

TEST(ParameterServerPlacement, IsTheSameForVariablesThatAFunctionMakes) {
  Placed job(2, FixedShardsPartitioner(2));
  const auto make = [&] {
    const auto scope = job.strategy.scope();
    return std::vector{Variable(at::eye(2)), Variable([] { return at::eye(2); }),
                       Variable([](const Ints& shape, const Ints& offset) { return at::eye(2).narrow(0, offset[0], shape[0]); },
                                {2, 2}, at::kFloat)};
  };
  for (const auto& v : make()) {
    EXPECT_THAT(v.devices(), ElementsAre(on_ps(0), on_ps(1)));
    EXPECT_THAT(shards(v), ElementsAre(Floats{1, 0}, Floats{0, 1}));
  }
}

TEST(ParameterServerFiles, ComeBackIntoShards) {
  const ScratchFolder folder;
  {
    Placed job(2, FixedShardsPartitioner(2));
    const auto scope = job.strategy.scope();
    Variable w(at::zeros({4}));
    Checkpoint checkpoint;
    checkpoint.track("w", w);
    w.assign(vec({1, 2, 3, 4}));
    checkpoint.write(folder / "c");
    w.assign(at::zeros({4}));
    checkpoint.read(folder / "c");
    EXPECT_THAT(shards(w), ElementsAre(Floats{1, 2}, Floats{3, 4}));
  }
  // Made when there is a file already, by another job with other shards.
  Placed job(3, FixedShardsPartitioner(3));
  const auto scope = job.strategy.scope();
  const Variable w(at::zeros({4}));
  Checkpoint().track("w", w).read(folder / "c");
  EXPECT_THAT(shards(w), ElementsAre(Floats{1, 2}, Floats{3}, Floats{4}));
}

TEST(ParameterServerCluster, IsRefusedWithJobsAndTasksThatAreNotKnown) {
  const auto with = [](const ClusterSpec& spec, const std::string& type = "chief") {
    return [=] {
      ParameterServerStrategy(
          std::make_shared<SimpleClusterResolver>(spec, SimpleClusterOptions{.task_type = type, .task_id = 0}));
    };
  };
  const std::vector<std::string> one = {"127.0.0.1:1"};
  EXPECT_THAT(with({{"chief", one}, {"worker", one}, {"ps", one}, {"some_arbitrary_name", one}}),
              ThrowsCode(ErrorCode::kInvalidArgument, "some_arbitrary_name"));
  EXPECT_THAT(with({{"chief", one}, {"worker", one}, {"ps", one}}, "foobar"),
              ThrowsCode(ErrorCode::kInvalidArgument, "foobar"));
  EXPECT_THAT(with({{"chief", {"a:1", "b:1", "c:1"}}, {"worker", one}, {"ps", one}}),
              ThrowsCode(ErrorCode::kInvalidArgument, "chief"));
  EXPECT_THAT(with({{"chief", one}, {"ps", one}}), ThrowsCode(ErrorCode::kInvalidArgument, "no worker"));
  EXPECT_THAT(with({{"chief", one}, {"worker", one}}), ThrowsCode(ErrorCode::kInvalidArgument, "no ps"));
}

// The only test that does so: the warning comes once in a process.
TEST(OnTheCoordinator, RunAndReduceWorkAndSayThatTheyShouldBeScheduled) {
  Placed job(1);
  const LogCapture log;
  EXPECT_THAT(floats(job.strategy.run([] { return scalar(3); })), ElementsAre(3));
  EXPECT_EQ(job.strategy.reduce(ReduceOp::kSum, 0.0), 0);
  using ::testing::AllOf, ::testing::Contains, ::testing::HasSubstr;
  EXPECT_THAT(log.warnings(), Contains(AllOf(HasSubstr("run()"), HasSubstr("schedule"))));
  EXPECT_THAT(log.warnings(), Contains(AllOf(HasSubstr("reduce()"), HasSubstr("schedule"))));
}

TEST(OnTheCoordinator, DatasetsAreNotDistributed) {
  Placed job(1);
  const auto data = data::Dataset::range(10).batch(2);
  EXPECT_THAT([&] { job.strategy.experimental_distribute_dataset(data); },
              ThrowsCode(ErrorCode::kInvalidArgument, "create_per_worker_dataset"));
  EXPECT_THAT([&] { job.strategy.distribute_datasets_from_function([&](const InputContext&) { return data; }); },
              ThrowsCode(ErrorCode::kInvalidArgument, "create_per_worker_dataset"));
}

}  // namespace
}  // namespace lockstep::testing
