#include "lockstep/compat/v1/config_proto.h"

#include <ATen/ATen.h>

#include <memory>

#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/compat/v1/mirrored_strategy.h"
#include "lockstep/compat/v1/multi_worker_mirrored_strategy.h"
#include "lockstep/strategy/one_device_strategy.h"
#include "tests/support/testing.h"

// What each strategy makes of a session's configuration.

namespace lockstep::compat::v1 {
namespace {

using lockstep::testing::cpus;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;
using enum CommunicationImplementation;

ConfigProto filled() {
  ConfigProto config{.device_count = {{"CPU", 2}}, .inter_op_parallelism_threads = 3, .device_filters = {"/job:ps"}};
  config.graph_options.rewrite_options.scoped_allocator_opts.enable_op = {"Other"};
  return config;
}

SimpleClusterResolver task(const ClusterSpec& spec, const std::string& type, std::int64_t id) {
  return SimpleClusterResolver(spec, {.task_type = type, .task_id = id});
}

const ClusterSpec kWorkers{{"worker", {"a:1", "b:1", "c:1"}}};
const ClusterSpec kWithChief{{"chief", {"a:1"}}, {"worker", {"b:1"}}, {"evaluator", {"c:1"}}};

TEST(UpdateConfigProto, OfMirroredIsolatesTheSessionOfACopy) {
  MirroredStrategy strategy(cpus(2));
  const auto config = filled();
  auto expected = config;
  expected.isolate_session_state = true;
  auto updated = strategy.update_config_proto(config);
  EXPECT_EQ(updated, expected);
  EXPECT_EQ(config, filled());
  updated.device_filters.push_back("/job:x");
  updated.graph_options.rewrite_options.scoped_allocator_opts.enable_op.clear();
  EXPECT_EQ(config, filled()) << "nothing is shared";
}

TEST(UpdateConfigProto, OfOneDeviceIsTheSame) {
  FirstVersion<OneDeviceStrategy> strategy("CPU:0");
  EXPECT_EQ(strategy.update_config_proto(filled()), filled());
}

TEST(UpdateConfigProto, OfAWorkerNamesItsLeaderAndItself) {
  const auto resolver = task(kWorkers, "worker", 1);
  const auto updated = internal::config_for_worker(filled(), &resolver, kAuto);
  const auto& rewrite = updated.graph_options.rewrite_options;
  EXPECT_EQ(rewrite.scoped_allocator_optimization, Toggle::kOn);
  EXPECT_THAT(rewrite.scoped_allocator_opts.enable_op, ElementsAre("CollectiveReduce"));
  EXPECT_EQ(updated.experimental.collective_group_leader, "/job:worker/replica:0/task:0");
  EXPECT_THAT(updated.device_filters, ElementsAre("/job:worker/task:1"));
  EXPECT_FALSE(updated.experimental.collective_nccl);
  EXPECT_FALSE(updated.isolate_session_state);
  EXPECT_EQ(updated.inter_op_parallelism_threads, 3);
}

TEST(UpdateConfigProto, OfAClusterWithAChiefIsLedByIt) {
  const auto worker = task(kWithChief, "worker", 0);
  EXPECT_EQ(internal::config_for_worker({}, &worker, kRing).experimental.collective_group_leader,
            "/job:chief/replica:0/task:0");
  const auto evaluator = task(kWithChief, "evaluator", 0);
  const auto updated = internal::config_for_worker({}, &evaluator, kRing);
  EXPECT_EQ(updated.experimental.collective_group_leader, "") << "an evaluator is a cluster of its own";
  EXPECT_THAT(updated.device_filters, ElementsAre("/job:evaluator/task:0"));
}

TEST(UpdateConfigProto, AsksForNcclWhereTheStrategyDoes) {
  EXPECT_TRUE(internal::config_for_worker({}, nullptr, kNccl).experimental.collective_nccl);
  EXPECT_FALSE(internal::config_for_worker({}, nullptr, kRing).experimental.collective_nccl);
}

TEST(UpdateConfigProto, RefusesATaskThatIsNotOfTheCluster) {
  const SimpleClusterResolver nobody(kWorkers);
  EXPECT_THAT([&] { internal::config_for_worker({}, &nobody, kAuto); },
              ThrowsCode(ErrorCode::kInvalidArgument, "task type and task id"));
  const auto missing = task(kWorkers, "worker", 9);
  EXPECT_THAT([&] { internal::config_for_worker({}, &missing, kAuto); }, ThrowsCode(ErrorCode::kInvalidArgument, "9"));
}

TEST(UpdateConfigProto, OfAWorkerThatIsAloneHasNoLeader) {
  using Alone = experimental::MultiWorkerMirroredStrategy;
  const Alone strategy(experimental::CollectiveCommunication::kRing, std::make_shared<SimpleClusterResolver>(ClusterSpec()));
  const auto config = filled();
  const auto updated = strategy.update_config_proto(config);
  EXPECT_EQ(config, filled());
  EXPECT_EQ(updated.graph_options.rewrite_options.scoped_allocator_optimization, Toggle::kOn);
  EXPECT_EQ(updated.experimental.collective_group_leader, "");
  EXPECT_THAT(updated.device_filters, ElementsAre("/job:ps"));
}

TEST(UpdateConfigProto, OfAClusterOfOneKnowsTheTask) {
  const auto resolver = std::make_shared<SimpleClusterResolver>(task(ClusterSpec{{"worker", {"a:1"}}}, "worker", 0));
  const experimental::MultiWorkerMirroredStrategy strategy(experimental::CollectiveCommunication::kAuto, resolver);
  const auto updated = strategy.update_config_proto({});
  EXPECT_EQ(updated.experimental.collective_group_leader, "/job:worker/replica:0/task:0");
  EXPECT_THAT(updated.device_filters, ElementsAre("/job:worker/task:0"));
}

}  // namespace
}  // namespace lockstep::compat::v1
