#include "lockstep/ps/partitioner.h"

#include <limits>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;
using Shape = std::vector<std::int64_t>;

constexpr auto kFloat = c10::ScalarType::Float;
constexpr auto kStrings = c10::ScalarType::Undefined;

TEST(FixedShardsPartitioner, GivesItsNumberUpToTheRows) {
  EXPECT_THAT(FixedShardsPartitioner(2)({10, 3}, kFloat), ElementsAre(2, 1));
  EXPECT_THAT(FixedShardsPartitioner(4)({3}, kFloat), ElementsAre(3));
  EXPECT_THAT(FixedShardsPartitioner(4)({9, 3}, kFloat, 1), ElementsAre(1, 3));
}

TEST(MinSizePartitioner, CountsBegunShards) {
  const auto shards = [](std::int64_t min_shard_bytes, std::int64_t max_shards, const Shape& shape) {
    return MinSizePartitioner({.min_shard_bytes = min_shard_bytes, .max_shards = max_shards})(shape, kFloat)[0];
  };
  EXPECT_EQ(shards(4, 2, {6, 1}), 2);
  EXPECT_EQ(shards(4, 10, {6, 1}), 6);
  EXPECT_EQ(shards(256 << 10, 2, {75, 1024}), 2);  // 300 KiB: of 150 KiB each
  EXPECT_EQ(shards(256 << 10, 20, {1024, 1024}), 16);
  EXPECT_EQ(shards(64 << 20, 2, {10}), 1);
}

TEST(MinSizePartitioner, DividesNothingUnlessTold) {
  EXPECT_THAT(MinSizePartitioner()({1024, 1024}, kFloat), ElementsAre(1, 1));
}

TEST(MaxSizePartitioner, GivesAsFewAsPossible) {
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 4})({6, 1}, kFloat), ElementsAre(6, 1));
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 2})({6, 1}, kFloat), ElementsAre(2, 1));
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 1024})({6, 1}, kFloat), ElementsAre(1, 1));
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 4000})({1000, 10}, kFloat), ElementsAre(10, 1));
}

TEST(Partitioners, StringsHaveTheSizeThatIsGiven) {
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 32})({6}, kStrings), ElementsAre(3));
  EXPECT_THAT(MaxSizePartitioner({.max_shard_bytes = 32, .bytes_per_string = 32})({6}, kStrings), ElementsAre(6));
  EXPECT_THAT(MinSizePartitioner({.min_shard_bytes = 32, .max_shards = 9})({6}, kStrings), ElementsAre(3));
}

TEST(Partitioners, RefuseOptionsBelowOne) {
  const auto is_refused = ThrowsCode(ErrorCode::kInvalidArgument, "must be at least 1");
  EXPECT_THAT([] { FixedShardsPartitioner(0); }, is_refused);
  EXPECT_THAT([] { MinSizePartitioner({.min_shard_bytes = 0}); }, is_refused);
  EXPECT_THAT([] { MinSizePartitioner({.max_shards = 0}); }, is_refused);
  EXPECT_THAT([] { MinSizePartitioner({.bytes_per_string = -1}); }, is_refused);
  EXPECT_THAT([] { MaxSizePartitioner(MaxSizePartitionerOptions{}); }, is_refused);
  EXPECT_THAT([] { MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 0}); }, is_refused);
  EXPECT_THAT([] { MaxSizePartitioner({.max_shard_bytes = 4, .bytes_per_string = 0}); }, is_refused);
}

TEST(Partitioners, RefuseShapesThatCannotBeDivided) {
  const FixedShardsPartitioner fixed(2);
  const MinSizePartitioner min_size({.max_shards = 2});
  const MaxSizePartitioner max_size({.max_shard_bytes = 64});
  for (const Shape& shape : {Shape{0, 3}, Shape{4, 0}, Shape{-1, 2}, Shape{}}) {
    EXPECT_THAT([&] { fixed(shape, kFloat); }, ThrowsCode(ErrorCode::kInvalidArgument, "FixedShardsPartitioner"));
    EXPECT_THAT([&] { min_size(shape, kFloat); }, ThrowsCode(ErrorCode::kInvalidArgument, "MinSizePartitioner"));
    EXPECT_THAT([&] { max_size(shape, kFloat); }, ThrowsCode(ErrorCode::kInvalidArgument, "MaxSizePartitioner"));
  }
  EXPECT_THAT([&] { fixed({4, 2}, kFloat, 2); }, ThrowsCode(ErrorCode::kInvalidArgument, "no dimension 2"));
  EXPECT_THAT([&] { fixed({4, 2}, kFloat, -1); }, ThrowsCode(ErrorCode::kInvalidArgument, "no dimension -1"));
  const auto huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THAT([&] { max_size({huge, 2}, kFloat); }, ThrowsCode(ErrorCode::kInvalidArgument, "more bytes"));
}

TEST(CountShards, AsksThePartitioner) {
  EXPECT_EQ(count_shards(FixedShardsPartitioner(2), {5, 2}, kFloat), 2);
  EXPECT_EQ(count_shards(MinSizePartitioner({.min_shard_bytes = 4, .max_shards = 9}), {6}, kFloat), 6);
  EXPECT_EQ(count_shards([](const Shape& shape, c10::ScalarType) { return Shape{shape[0] / 2, 1}; }, {8, 2}, kFloat), 4);
}

TEST(CountShards, WithoutAPartitionerOrADimensionThereIsOne) {
  EXPECT_EQ(count_shards(nullptr, {5, 2}, kFloat), 1);
  EXPECT_EQ(count_shards(FixedShardsPartitioner(2), {}, kFloat), 1);
}

TEST(CountShards, ThereAreNoMoreShardsThanRows) {
  const auto ten = [](const Shape&, c10::ScalarType) { return Shape{10}; };
  EXPECT_EQ(count_shards(ten, {3}, kFloat), 3);
  EXPECT_EQ(count_shards(ten, {0}, kFloat), 1);
}

TEST(CountShards, RefusesAnswersThatDivideOtherDimensions) {
  for (const Shape& answer : {Shape{}, Shape{0, 1}, Shape{-2, 1}, Shape{1, 2}, Shape{2, 0}}) {
    const auto partitioner = [&](const Shape&, c10::ScalarType) { return answer; };
    EXPECT_THAT(
        [&] {
          count_shards(partitioner, {4, 2}, kFloat);
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "only the first dimension"));
  }
}

}  // namespace
}  // namespace lockstep
