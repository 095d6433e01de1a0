#include <numeric>

#include "tests/conformance/testing.h"

// Distributed datasets: which rows reach which replica, and how the data ends.

namespace lockstep::testing {
namespace {

using data::Dataset;

const std::vector<Step> kPairs = {{{0}, {1}}, {{2}, {3}}, {{4}, {5}}, {{6}, {7}}, {{8}, {9}}};

DistributedDataset from_function(Strategy& strategy, const Dataset& dataset, const InputOptions& options = {}) {
  return strategy.distribute_datasets_from_function([&](const InputContext&) { return dataset; }, options);
}

TEST(FromFunction, OneReplicaGetsEveryElement) {
  OneDeviceStrategy strategy("CPU:0");
  const auto distributed = from_function(strategy, Dataset::range(10));
  auto iterator = distributed.make_iterator();
  for (std::int64_t k = 0; k < 10; ++k) EXPECT_EQ(parts(iterator.get_next()), (Step{{k}}));
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
  EXPECT_FALSE(iterator.next().has_value());
}

TEST(FromFunction, ReplicasGetConsecutiveElements) {
  MirroredStrategy strategy(cpus(2));
  std::vector<std::string> contexts;
  const auto distributed = strategy.distribute_datasets_from_function([&](const InputContext& context) {
    contexts.push_back(str(context, " of ", context.num_replicas_in_sync));
    return Dataset::range(10);
  });
  EXPECT_THAT(contexts, ElementsAre("tf.distribute.InputContext(input pipeline id 0, total: 1) of 2"));
  EXPECT_EQ(steps(distributed), kPairs);
  EXPECT_EQ(steps(distributed), kPairs) << "a second pass starts again";
}

TEST(FromFunction, ReplicasAreCountedInOrderWhateverTheirNumber) {
  MirroredStrategy strategy(cpus(4));
  EXPECT_EQ(steps(from_function(strategy, Dataset::range(4))), (std::vector<Step>{{{0}, {1}, {2}, {3}}}));
}

TEST(FromFunction, WhenTheDataEndsInAStepTheOthersGetNoRows) {
  MirroredStrategy strategy(cpus(2));
  const auto distributed = from_function(strategy, Dataset::range(9).batch(2));
  EXPECT_EQ(steps(distributed), (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
}

TEST(FromFunction, FixedShapesEndBeforeAPartialStepUnlessAskedByOptional) {
  MirroredStrategy strategy(cpus(2));
  const auto distributed = from_function(strategy, Dataset::range(10).batch(2, /*drop_remainder=*/true));
  const auto total = [](const Step& step) {
    std::int64_t sum = 0;
    for (const auto& part : step) sum = std::accumulate(part.begin(), part.end(), sum);
    return sum;
  };
  std::int64_t by_next = 0;
  for (const auto& batch : distributed) by_next += total(parts(batch));
  EXPECT_EQ(by_next, 28);

  std::int64_t by_optional = 0;
  auto iterator = distributed.make_iterator();
  for (auto batch = iterator.get_next_as_optional(); batch.has_value(); batch = iterator.get_next_as_optional())
    by_optional += total(parts(batch.get_value()));
  EXPECT_EQ(by_optional, 45);
}

TEST(FromFunction, OnePipelinePerReplicaGivesEachItsOwnData) {
  MirroredStrategy strategy(cpus(2));
  std::vector<std::string> contexts;
  const auto distributed = strategy.distribute_datasets_from_function(
      [&](const InputContext& context) {
        contexts.push_back(str(context.input_pipeline_id, "/", context.num_input_pipelines, "/", context.num_replicas_in_sync));
        const int factor = context.input_pipeline_id + 1;
        return Dataset::range(5).map([=](at::Tensor x) { return x * factor; });
      },
      {.experimental_fetch_to_device = false, .experimental_replication_mode = InputReplicationMode::kPerReplica});
  EXPECT_THAT(contexts, ElementsAre("0/2/2", "1/2/2"));
  std::vector<Step> expected;
  for (std::int64_t e = 0; e < 5; ++e) expected.push_back({{e}, {2 * e}});
  EXPECT_EQ(steps(distributed), expected);
}

TEST(DistributeDataset, IsIteratedInOrderUntilItEnds) {
  MirroredStrategy strategy(cpus(1));
  std::vector<Step> expected;
  for (std::int64_t k = 0; k < 10; ++k) expected.push_back({{k}});
  EXPECT_EQ(steps(strategy.experimental_distribute_dataset(Dataset::range(10))), expected);
}

TEST(DistributeDataset, CutsEveryGlobalBatchInContiguousParts) {
  MirroredStrategy strategy(cpus(2));
  const auto tens = steps(strategy.experimental_distribute_dataset(Dataset::range(100).batch(10)));
  ASSERT_EQ(tens.size(), 10u);
  for (std::int64_t k = 0; k < 10; ++k) {
    Step expected(2, Ints(5));
    std::iota(expected[0].begin(), expected[0].end(), 10 * k);
    std::iota(expected[1].begin(), expected[1].end(), 10 * k + 5);
    EXPECT_EQ(tens[static_cast<std::size_t>(k)], expected);
  }
  EXPECT_EQ(steps(strategy.experimental_distribute_dataset(Dataset::range(10).batch(2))), kPairs);
}

TEST(DistributeDataset, EveryPassGivesTheSame) {
  MirroredStrategy strategy(cpus(2));
  const auto distributed = strategy.experimental_distribute_dataset(Dataset::range(10).batch(2));
  EXPECT_EQ(steps(distributed), kPairs);
  EXPECT_EQ(steps(distributed), kPairs);
}

TEST(DistributeDataset, PassesOverAShuffledDatasetDifferOnlyWhenReshuffling) {
  MirroredStrategy strategy(cpus(2));
  const auto two_passes = [&](bool reshuffle_each_iteration) {
    const auto shuffled = Dataset::range(100).shuffle(100, 7, reshuffle_each_iteration).batch(10);
    const auto distributed = strategy.experimental_distribute_dataset(shuffled);
    auto first = steps(distributed);
    return std::pair(std::move(first), steps(distributed));
  };
  const auto [first, second] = two_passes(true);
  EXPECT_NE(first, second);
  const auto [again, same] = two_passes(false);
  EXPECT_EQ(again, same);
}

TEST(DistributeDataset, FewerRowsThanReplicasLeavesPartsEmpty) {
  MirroredStrategy three(cpus(3));
  EXPECT_EQ(steps(three.experimental_distribute_dataset(Dataset::range(4).batch(4))), (std::vector<Step>{{{0, 1}, {2}, {3}}}));
  MirroredStrategy two(cpus(2));
  EXPECT_EQ(steps(two.experimental_distribute_dataset(Dataset::range(9).batch(4))),
            (std::vector<Step>{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
}

TEST(DistributeDataset, ScalarElementsCannotBeSplit) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(code_of([&] { strategy.experimental_distribute_dataset(Dataset::range(4)); }), ErrorCode::kInvalidArgument);
}

TEST(DistributeDataset, FetchesToTheReplicasDevicesUnlessTold) {
  MirroredStrategy strategy({}, {.replicas_per_device = 2});  // the GPUs where there are any
  const int n = strategy.num_replicas_in_sync();
  const auto dataset = Dataset::range(100).batch(n);
  for (const auto& batch : strategy.experimental_distribute_dataset(dataset, {.experimental_fetch_to_device = false}))
    for (const auto& part : batch) EXPECT_TRUE(part[0].is_cpu());
  for (const auto& batch : strategy.experimental_distribute_dataset(dataset, {.experimental_fetch_to_device = true}))
    for (int r = 0; r < n; ++r) EXPECT_EQ(batch[static_cast<std::size_t>(r)][0].device(), strategy.replicas().torch_device(r));
}

TEST(NumpyDataset, HoldsTheRowsOfAnArray) {
  MirroredStrategy strategy(cpus(2));
  double sum = 0;
  for (const auto& element : strategy.experimental_make_numpy_dataset({at::ones({10})})) sum += element[0].item<double>();
  EXPECT_EQ(sum, 10);
}

TEST(NumpyDataset, IsBatchedRepeatedAndDistributed) {
  MirroredStrategy strategy(cpus(2));
  const auto rows = at::arange(12, at::kLong).view({6, 2});
  const auto dataset = strategy.experimental_make_numpy_dataset({rows}).batch(2).repeat(2);
  const auto distributed = strategy.experimental_distribute_dataset(dataset);
  auto iterator = distributed.make_iterator();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t k = 0; k < 12; k += 4) EXPECT_EQ(parts(iterator.get_next()), (Step{{k, k + 1}, {k + 2, k + 3}}));
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace lockstep::testing
