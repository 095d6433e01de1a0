#include "lockstep/ps/row_split.h"

#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

std::vector<std::int64_t> sizes_of(const RowSplit& split) {
  std::vector<std::int64_t> sizes;
  for (std::size_t shard = 0; shard < split.shards(); ++shard) sizes.push_back(split.size(shard));
  return sizes;
}

TEST(RowSplit, DivGivesTheFirstShardsOneRowMore) {
  EXPECT_THAT(sizes_of(RowSplit::div(13, 5)), ElementsAre(3, 3, 3, 2, 2));
  EXPECT_THAT(sizes_of(RowSplit::div(10, 4)), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(sizes_of(RowSplit::div(5, 2)), ElementsAre(3, 2));
  EXPECT_THAT(sizes_of(RowSplit::div(3, 4)), ElementsAre(1, 1, 1));
}

TEST(RowSplit, RefusesNothingToDivide) {
  EXPECT_THAT([] { RowSplit::div(0, 2); }, ThrowsCode(ErrorCode::kInvalidArgument, "0 rows"));
  EXPECT_THAT([] { RowSplit::div(4, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "0 shards"));
  EXPECT_THAT([] { RowSplit({}); }, ThrowsCode(ErrorCode::kInvalidArgument, "one shard"));
  EXPECT_THAT([] { RowSplit({2, -1}); }, ThrowsCode(ErrorCode::kInvalidArgument, "-1 rows"));
}

TEST(RowSplit, KnowsADivSplit) {
  EXPECT_TRUE(RowSplit({3, 3, 3, 2}).is_div());
  EXPECT_TRUE(RowSplit({4}).is_div());
  EXPECT_FALSE(RowSplit({1, 10}).is_div());
  EXPECT_FALSE(RowSplit({2, 3}).is_div());
}

TEST(RowSplit, EveryRowHasItsPlace) {
  // Shards without rows have no place of any row.
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{11, 11, 10}, {1}, {0, 2, 0, 0, 3, 0}, {1, 10}}) {
    const RowSplit split(sizes);
    std::int64_t row = 0;
    for (std::size_t shard = 0; shard < sizes.size(); ++shard) {
      EXPECT_EQ(split.begin(shard), row);
      for (std::int64_t local = 0; local < sizes[shard]; ++local, ++row) {
        EXPECT_EQ(split.place_of(row).shard, shard) << row;
        EXPECT_EQ(split.place_of(row).row, local) << row;
      }
    }
    EXPECT_EQ(split.rows(), row);
  }
}

TEST(RowSplit, RoutesRowsToTheShardsThatHaveThem) {
  const auto parts = RowSplit({3, 3, 3, 2}).route(std::vector<std::int64_t>{8, 1, 6, 2, 6});
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(parts[0].shard, 0);
  EXPECT_THAT(parts[0].rows, ElementsAre(1, 2));
  EXPECT_THAT(parts[0].positions, ElementsAre(1, 3));
  EXPECT_EQ(parts[1].shard, 2);
  EXPECT_THAT(parts[1].rows, ElementsAre(2, 0, 0));
  EXPECT_THAT(parts[1].positions, ElementsAre(0, 2, 4));
}

TEST(RowSplit, RefusesRowsThatAreNotThere) {
  const RowSplit split({3, 2});
  EXPECT_THAT(
      [&] {
        split.route(std::vector<std::int64_t>{0, 5});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "row 5 at position 1", "[0, 5)"));
  EXPECT_THAT([&] { split.route(std::vector<std::int64_t>{-1}); }, ThrowsCode(ErrorCode::kInvalidArgument, "row -1"));
}

}  // namespace
}  // namespace lockstep::ps
