#include "tests/conformance/testing.h"

// Options, and what is told to the functions that make data.

namespace lockstep::testing {
namespace {

TEST(InputContextValue, DividesTheGlobalBatch) {
  const InputContext context{.num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 6};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_EQ(code_of([&] { context.get_per_replica_batch_size(13); }), ErrorCode::kInvalidArgument);
}

TEST(InputContextValue, PrintsItself) {
  EXPECT_EQ(str(InputContext{1, 0, 42}), "tf.distribute.InputContext(input pipeline id 0, total: 1)");
  EXPECT_EQ(str(InputContext{3, 1, 42}), "tf.distribute.InputContext(input pipeline id 1, total: 3)");
}

TEST(CommunicationOptionsValue, RefusesNegativeSizes) {
  EXPECT_EQ(code_of([] { CommunicationOptions{.bytes_per_pack = 1}.validate(); }), std::nullopt);
  EXPECT_EQ(code_of([] { CommunicationOptions{.bytes_per_pack = -1}.validate(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { MirroredStrategy strategy(cpus(2), {.communication = {.bytes_per_pack = -1}}); }),
            ErrorCode::kInvalidArgument);
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(code_of([&] {
              strategy.extended().reduce_to("sum", scalars({1, 2}), "CPU:0", {.bytes_per_pack = -1});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(CommunicationOptionsValue, HasAnOlderName) {
  const CollectiveHints hints{50, 1};
  const CommunicationOptions& options = hints;
  EXPECT_EQ(options.bytes_per_pack, 50);
  EXPECT_EQ(options.timeout_seconds, 1);
  EXPECT_EQ(options.implementation, CommunicationImplementation::kAuto);
}

TEST(GroupBySize, BeginsANewPackWhenOneIsLargerThanTheLimit) {
  EXPECT_THAT(group_by_size({128, 32, 800, 4}, 200), ElementsAre(3, 1));
}

TEST(GroupBySize, WithoutALimitIsOnePack) { EXPECT_THAT(group_by_size({128, 32, 800, 4}, 0), ElementsAre(4)); }

TEST(InputOptionsValue, PlacingTheDatasetOnADeviceExcludesFetchingToIt) {
  MirroredStrategy strategy(cpus(2));
  const auto make = [](const InputContext&) { return data::Dataset::range(4).batch(2); };
  const InputOptions options{.experimental_fetch_to_device = true,
                             .experimental_replication_mode = InputReplicationMode::kPerReplica,
                             .experimental_place_dataset_on_device = true};
  EXPECT_EQ(code_of([&] { strategy.distribute_datasets_from_function(make, options); }), ErrorCode::kInvalidArgument);
}

TEST(InputOptionsValue, OnePipelinePerReplicaNeedsADatasetFunction) {
  MirroredStrategy strategy(cpus(2));
  const auto dataset = data::Dataset::range(4).batch(2);
  const InputOptions options{.experimental_replication_mode = InputReplicationMode::kPerReplica};
  EXPECT_EQ(code_of([&] { strategy.experimental_distribute_dataset(dataset, options); }), ErrorCode::kUnimplemented);
}

}  // namespace
}  // namespace lockstep::testing
