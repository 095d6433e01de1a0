#include "lockstep/compat/experimental/multi_worker_mirrored_strategy.h"

#include <ATen/ATen.h>

#include <memory>
#include <type_traits>

#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/compat/v1/multi_worker_mirrored_strategy.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/testing.h"

// The older names of tf.distribute.experimental, in a process that is alone.

namespace lockstep::experimental {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;

static_assert(std::is_same_v<CollectiveCommunication, CommunicationImplementation>);
static_assert(std::is_same_v<CollectiveHints, CommunicationOptions>);
static_assert(!std::is_copy_constructible_v<MultiWorkerMirroredStrategy>);

std::shared_ptr<const ClusterResolver> nobody_else() { return std::make_shared<SimpleClusterResolver>(ClusterSpec()); }

TEST(OlderMultiWorkerMirroredStrategy, IsTodaysWithItsOlderArguments) {
  const auto resolver = nobody_else();
  MultiWorkerMirroredStrategy strategy(CollectiveCommunication::kRing, resolver);
  lockstep::MultiWorkerMirroredStrategy& today = strategy;
  EXPECT_EQ(today.cluster_resolver(), resolver.get());
  EXPECT_EQ(today.num_workers(), 1);
  EXPECT_TRUE(today.is_chief());
  EXPECT_EQ(today.replicas().options().communication.implementation, CommunicationImplementation::kRing);
}

TEST(OlderMultiWorkerMirroredStrategy, RefusesAClusterThatDoesNotSayWhichTaskThisIs) {
  const auto resolver = std::make_shared<SimpleClusterResolver>(ClusterSpec{{"worker", {"a:1", "b:1"}}});
  EXPECT_THAT([&] { MultiWorkerMirroredStrategy strategy(CollectiveCommunication::kAuto, resolver); },
              ThrowsCode(ErrorCode::kInvalidArgument, "task type and task id"));
}

TEST(OlderMultiWorkerMirroredStrategy, RunsAndReducesUnderOlderNames) {
  MultiWorkerMirroredStrategy strategy(CollectiveCommunication::kAuto, nobody_else());
  const auto results = strategy.experimental_run_v2([](double x, double y) { return at::tensor({x, y}); }, 1.0, 2.0);
  EXPECT_TRUE(strategy.reduce("sum", results).equal(at::tensor({1.0, 2.0})));
  const auto distributed = strategy.experimental_distribute_datasets_from_function(
      [](const InputContext& context) { return data::Dataset::range(3).batch(context.get_per_replica_batch_size(2)); });
  EXPECT_EQ(distributed.cardinality(), 2);
}

TEST(OlderMultiWorkerMirroredStrategy, TakesHintsWhereverOptionsAreTaken) {
  MultiWorkerMirroredStrategy strategy(CollectiveCommunication::kAuto, nobody_else());
  const CollectiveHints hints{.bytes_per_pack = 50, .timeout_seconds = 10};
  auto& extended = strategy.extended();
  const PerReplica<at::Tensor> value({at::tensor(3.0f)});
  EXPECT_EQ(extended.reduce_to("sum", value, "CPU:0", hints)[0].item<float>(), 3);
  EXPECT_EQ(extended.batch_reduce_to("sum", {{value, "CPU:0"}}, hints)[0][0].item<float>(), 3);
  const auto sums =
      strategy.run([&](ReplicaContext& context, at::Tensor x) { return context.all_reduce("sum", x, hints); }, value);
  EXPECT_EQ(sums[0].item<float>(), 3);
  EXPECT_EQ(code_of([&] { extended.reduce_to("sum", value, "CPU:0", CollectiveHints{.bytes_per_pack = -1}); }),
            ErrorCode::kInvalidArgument);
}

TEST(OlderMultiWorkerMirroredStrategy, OfTheFirstVersionHasItsIterators) {
  compat::v1::experimental::MultiWorkerMirroredStrategy strategy(CollectiveCommunication::kAuto, nobody_else());
  auto iterator = strategy.make_input_fn_iterator([](const InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    return data::Dataset::range(2);
  });
  iterator.initialize();
  for (std::int64_t k = 0; k < 2; ++k)
    EXPECT_EQ(strategy.experimental_run([](at::Tensor x) { return x + 1; }, iterator)[0].item<std::int64_t>(), k + 1);
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace lockstep::experimental
