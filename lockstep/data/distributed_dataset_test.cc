#include "lockstep/data/distributed_dataset.h"

#include <atomic>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "lockstep/base/str.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"
#include "tests/support/data_testing.h"

namespace lockstep {
namespace {

using data::Dataset;
using data::Element;
using data::testing::code_of;
using data::testing::Ints;
using data::testing::ints;
using data::testing::numbers;
using data::testing::text_of;
using data::testing::vector;
using Steps = std::vector<std::vector<Ints>>;  // [step][replica]

std::unique_ptr<ReplicaSet> replicas(int count) {
  std::vector<LogicalDevice> devices;
  for (int i = 0; i < count; ++i) devices.push_back(find_logical_device(str("CPU:", i)));
  return std::make_unique<ReplicaSet>(nullptr, std::move(devices), ReplicaSetOptions{});
}

std::vector<Ints> parts(const PerReplica<Element>& batch) {
  std::vector<Ints> all;
  for (const auto& part : batch) all.push_back(ints(part[0]));
  return all;
}

Steps steps(const DistributedDataset& dataset) {
  Steps all;
  for (const auto& batch : dataset) all.push_back(parts(batch));
  return all;
}

Steps optional_steps(const DistributedDataset& dataset) {
  Steps all;
  auto iterator = dataset.make_iterator();
  for (auto batch = iterator.get_next_as_optional(); batch.has_value(); batch = iterator.get_next_as_optional())
    all.push_back(parts(batch.get_value()));
  return all;
}

Steps split(const Dataset& dataset, int count, AutoShardPolicy policy = AutoShardPolicy::kAuto) {
  const auto set = replicas(count);
  return steps(DistributedDataset::from_dataset(*set, dataset.with_options({.auto_shard_policy = policy})));
}

Dataset generated(const std::vector<Ints>& elements) {
  return Dataset::from_generator([elements] {
    return [elements, next = std::size_t{0}]() mutable -> std::optional<Element> {
      if (next == elements.size()) return std::nullopt;
      return Element(vector(elements[next++]));
    };
  });
}

TEST(DistributedDataset, CutsEachBatchEvenly) {
  for (const auto policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kData}) {
    EXPECT_EQ(split(Dataset::range(13).batch(7), 2, policy), (Steps{{{0, 1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}, {10, 11, 12}}}));
    EXPECT_EQ(split(Dataset::range(13).batch(7), 3, policy), (Steps{{{0, 1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12}}}));
    EXPECT_EQ(split(Dataset::range(9).batch(6), 4, policy), (Steps{{{0, 1}, {2, 3}, {4}, {5}}, {{6}, {7}, {8}, {}}}));
    EXPECT_EQ(split(Dataset::range(9).batch(6, true), 4, policy), (Steps{{{0, 1}, {2, 3}, {4}, {5}}}));
    EXPECT_EQ(split(Dataset::range(1).batch(7), 3, policy), (Steps{{{0}, {}, {}}}));
  }
}

TEST(DistributedDataset, JoinsAcrossBatchesWithoutDataSharding) {
  for (const auto policy : {AutoShardPolicy::kOff, AutoShardPolicy::kFile}) {
    EXPECT_EQ(split(Dataset::range(13).batch(7), 2, policy), (Steps{{{0, 1, 2, 3}, {4, 5, 6}}, {{7, 8, 9, 10}, {11, 12}}}));
    EXPECT_EQ(split(Dataset::range(9).batch(7).repeat(2), 3, policy),
              (Steps{{{0, 1, 2}, {3, 4}, {5, 6}}, {{7, 8, 0}, {1, 2}, {3, 4}}, {{5, 6, 7}, {8}, {}}}));
    EXPECT_EQ(split(Dataset::range(4).batch(4), 5, policy), (Steps{{{0}, {1}, {2}, {3}, {}}}));
    EXPECT_EQ(split(Dataset::range(10).batch(4), 2, policy), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8, 9}, {}}}));
  }
}

TEST(DistributedDataset, CutsEachBatchByTheOlderRuleWhenItsSizeIsUnknown) {
  const auto off = AutoShardPolicy::kOff;
  EXPECT_EQ(split(generated({{0, 1, 2, 3}, {4}}), 3, off), (Steps{{{0, 1}, {2, 3}, {}}, {{4}, {}, {}}}));
  EXPECT_EQ(split(Dataset::range(7).batch(7).map([](at::Tensor x) { return x; }), 3, off),
            (Steps{{{0, 1, 2}, {3, 4, 5}, {6}}}));
}

TEST(DistributedDataset, BatchesWithoutRowsMakeNoStep) {
  EXPECT_EQ(split(generated({{}, {1, 2}, {}}), 2), (Steps{{{1}, {2}}}));
  EXPECT_EQ(split(generated({{}, {1, 2}, {}}), 2, AutoShardPolicy::kOff), (Steps{{{1}, {2}}}));
  EXPECT_EQ(split(generated({}), 2), Steps{});
  EXPECT_EQ(split(Dataset::range(0).batch(7), 3), Steps{});
  EXPECT_EQ(split(Dataset::range(0).batch(7), 3, AutoShardPolicy::kOff), Steps{});
}

TEST(DistributedDataset, EmptyPartsKeepDtypeAndDimensions) {
  const auto set = replicas(3);
  const auto dataset = Dataset::from_tensor_slices({at::zeros({1, 4, 5}, at::kHalf), vector({7})}).batch(2);
  for (const auto policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kOff}) {
    auto iterator = DistributedDataset::from_dataset(*set, dataset.with_options({.auto_shard_policy = policy})).make_iterator();
    const auto batch = iterator.get_next();
    EXPECT_EQ(batch[0][0].sizes(), (at::IntArrayRef{1, 4, 5}));
    EXPECT_EQ(batch[2][0].sizes(), (at::IntArrayRef{0, 4, 5}));
    EXPECT_EQ(batch[2][0].scalar_type(), at::kHalf);
    EXPECT_EQ(batch[2][1].sizes(), (at::IntArrayRef{0}));
  }
}

TEST(DistributedDataset, PartsOnTheCpuShareTheBatchsMemory) {
  const auto set = replicas(2);
  auto iterator = DistributedDataset::from_dataset(*set, Dataset::range(4).batch(4)).make_iterator();
  const auto batch = iterator.get_next();
  EXPECT_EQ(batch[0][0].data_ptr<std::int64_t>() + 2, batch[1][0].data_ptr<std::int64_t>());
}

TEST(DistributedDataset, OneReplicaGetsElementsAsTheyAre) {
  EXPECT_EQ(split(Dataset::range(3), 1), (Steps{{{0}}, {{1}}, {{2}}}));
  EXPECT_EQ(split(Dataset::range(3).batch(2), 1, AutoShardPolicy::kOff), (Steps{{{0, 1}}, {{2}}}));
}

TEST(DistributedDataset, RefusesWhatCannotBeSplit) {
  const auto set = replicas(2);
  const auto scalars = Dataset::range(4);
  EXPECT_EQ(code_of([&] { DistributedDataset::from_dataset(*set, scalars); }), ErrorCode::kInvalidArgument);
  EXPECT_NE(text_of([&] { DistributedDataset::from_dataset(*set, scalars); }).find("batch()"), std::string::npos);
  // Hidden behind a function they are found when they arrive.
  const auto hidden = scalars.map([](at::Tensor x) { return x; });
  EXPECT_EQ(code_of([&] { steps(DistributedDataset::from_dataset(*set, hidden)); }), ErrorCode::kInvalidArgument);
  const auto uneven = Dataset::range(1).map([](at::Tensor) { return std::pair(at::zeros({3}), at::zeros({4})); });
  const auto text = text_of([&] { steps(DistributedDataset::from_dataset(*set, uneven)); });
  EXPECT_NE(text.find("component 1 has 4"), std::string::npos) << text;
}

TEST(DistributedDataset, EachPassStartsAgain) {
  const auto set = replicas(2);
  const auto same = DistributedDataset::from_dataset(*set, Dataset::range(50).shuffle(50, 3, false).batch(50));
  EXPECT_EQ(steps(same), steps(same));
  const auto other = DistributedDataset::from_dataset(*set, Dataset::range(50).shuffle(50, 3).batch(50));
  EXPECT_NE(steps(other), steps(other));
}

TEST(DistributedDataset, KnowsItsNumberOfSteps) {
  const auto set = replicas(2);
  const auto count = [&](const Dataset& dataset) { return DistributedDataset::from_dataset(*set, dataset).cardinality(); };
  EXPECT_EQ(count(Dataset::range(9).batch(4)), 3);
  EXPECT_EQ(count(Dataset::range(9).batch(4).repeat()), data::kInfinite);
  EXPECT_EQ(count(generated({})), data::kUnknown);
  const auto dealt = [&](const Dataset& dataset) {
    return DistributedDataset::from_function(*set, [&](const InputContext&) { return dataset; }).cardinality();
  };
  EXPECT_EQ(dealt(Dataset::range(9).batch(2)), 3);
  EXPECT_EQ(dealt(Dataset::range(10).batch(2)), 3);
  EXPECT_EQ(dealt(Dataset::range(10).batch(2, true)), 2);
}

TEST(DistributedIterator, EndsInThreeWays) {
  const auto set = replicas(2);
  const auto dataset = DistributedDataset::from_dataset(*set, Dataset::range(2).batch(2));
  auto iterator = dataset.make_iterator();
  EXPECT_EQ(parts(iterator.get_next()), (std::vector<Ints>{{0}, {1}}));
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
  EXPECT_FALSE(iterator.next().has_value());
  const auto none = iterator.get_next_as_optional();
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(code_of([&] { (void)none.get_value(); }), ErrorCode::kInvalidArgument);
}

TEST(DistributedIterator, IsForOutsideTheReplicas) {
  const auto set = replicas(2);
  const auto other = replicas(2);
  auto iterator = DistributedDataset::from_dataset(*set, Dataset::range(20).batch(2)).make_iterator();
  std::atomic<int> refused{0};
  set->run([&](ReplicaContext&) {
    if (code_of([&] { iterator.get_next(); }) == ErrorCode::kInvalidArgument) ++refused;
  });
  EXPECT_EQ(refused, 2);
  {
    const internal::ModeGuard scope({other.get(), nullptr});
    EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kFailedPrecondition);
  }
  const internal::ModeGuard scope({set.get(), nullptr});
  EXPECT_EQ(parts(iterator.get_next()), (std::vector<Ints>{{0}, {1}}));
}

TEST(DistributedIterator, FailsForGoodWhenThePipelineFails) {
  const auto set = replicas(2);
  const auto dataset = Dataset::range(9).batch(3).map([](at::Tensor x) -> at::Tensor {
    if (x[0].item<std::int64_t>() == 3) throw std::out_of_range("mine");
    return x;
  });
  auto iterator = DistributedDataset::from_dataset(*set, dataset).make_iterator();
  EXPECT_TRUE(iterator.next().has_value());
  EXPECT_THROW(iterator.next(), std::out_of_range);
  EXPECT_THROW(iterator.get_next(), std::out_of_range);
}

TEST(DistributedIterator, CanBeDroppedMidStreamWithPrefetch) {
  const auto set = replicas(2);
  const auto dataset = DistributedDataset::from_dataset(*set, Dataset::range(5).repeat().batch(4).prefetch(2));
  for (int i = 0; i < 100; ++i) {
    auto iterator = dataset.make_iterator();
    for (int step = 0; step < i % 4; ++step) EXPECT_EQ(iterator.get_next().size(), 2u);
  }
}

TEST(FromFunction, DealsElementsInTurn) {
  const auto set = replicas(3);
  std::vector<std::string> contexts;
  const auto deal = [&](const Dataset& dataset) {
    return DistributedDataset::from_function(*set, [&](const InputContext& context) {
      contexts.push_back(str(context, " of ", context.num_replicas_in_sync));
      return dataset;
    });
  };
  const auto partial = deal(Dataset::range(9).batch(2));
  EXPECT_EQ(contexts, (std::vector<std::string>{"tf.distribute.InputContext(input pipeline id 0, total: 1) of 3"}));
  EXPECT_EQ(steps(partial), (Steps{{{0, 1}, {2, 3}, {4, 5}}, {{6, 7}, {8}, {}}}));
  EXPECT_EQ(optional_steps(partial), steps(partial));
  const auto fixed = deal(Dataset::range(9).batch(2, true));
  EXPECT_EQ(steps(fixed), (Steps{{{0, 1}, {2, 3}, {4, 5}}}));
  EXPECT_EQ(optional_steps(fixed), (Steps{{{0, 1}, {2, 3}, {4, 5}}, {{6, 7}, {}, {}}}));
  EXPECT_EQ(steps(deal(Dataset::range(9))), (Steps{{{0}, {1}, {2}}, {{3}, {4}, {5}}, {{6}, {7}, {8}}}));
  EXPECT_EQ(code_of([&] { DistributedDataset::from_function(*set, nullptr); }), ErrorCode::kInvalidArgument);
}

TEST(FromFunction, ReplicasMayHaveTheirOwnPipelines) {
  const auto set = replicas(2);
  const InputOptions options{.experimental_replication_mode = InputReplicationMode::kPerReplica};
  const auto dataset = DistributedDataset::from_function(
      *set,
      [](const InputContext& context) {
        EXPECT_EQ(context.num_input_pipelines, 2);
        const auto factor = context.input_pipeline_id + 1;
        return Dataset::range(2 * factor).map([factor](at::Tensor x) { return x * factor; }).batch(1);
      },
      options);
  EXPECT_EQ(steps(dataset), (Steps{{{0}, {0}}, {{1}, {2}}, {{}, {4}}, {{}, {6}}}));
  EXPECT_EQ(dataset.cardinality(), 4);
}

TEST(InputOptions, RefusesWhatDoesNotGoTogether) {
  const auto set = replicas(2);
  const auto dataset = Dataset::range(4).batch(2);
  const auto whole = [&](const InputOptions& options) {
    return code_of([&] { DistributedDataset::from_dataset(*set, dataset, options); });
  };
  const auto function = [&](const InputOptions& options) {
    return code_of([&] {
      DistributedDataset::from_function(
          *set, [&](const InputContext&) { return dataset; }, options);
    });
  };
  const auto per_replica = InputReplicationMode::kPerReplica;
  EXPECT_EQ(whole({.experimental_replication_mode = per_replica}), ErrorCode::kUnimplemented);
  EXPECT_EQ(whole({.experimental_place_dataset_on_device = true}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(whole({.experimental_per_replica_buffer_size = -1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(whole({.experimental_fetch_to_device = false, .experimental_per_replica_buffer_size = 0}), std::nullopt);
  EXPECT_EQ(function({.experimental_replication_mode = per_replica}), std::nullopt);
  EXPECT_EQ(function({.experimental_place_dataset_on_device = true}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(function({.experimental_fetch_to_device = true,
                      .experimental_replication_mode = per_replica,
                      .experimental_place_dataset_on_device = true}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(function({.experimental_fetch_to_device = false,
                      .experimental_replication_mode = per_replica,
                      .experimental_place_dataset_on_device = true}),
            std::nullopt);
}

TEST(InputContext, DividesTheGlobalBatch) {
  const InputContext context{.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 4};
  EXPECT_EQ(context.get_per_replica_batch_size(8), 2);
  EXPECT_EQ(code_of([&] { context.get_per_replica_batch_size(9); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(str(context), "tf.distribute.InputContext(input pipeline id 1, total: 2)");
  EXPECT_EQ(InputContext().get_per_replica_batch_size(3), 3);
}

}  // namespace
}  // namespace lockstep
