#include "lockstep/data/rebatch_plan.h"
#include "tests/conformance/testing.h"

// Batches of other sizes out of the rows of batches.

namespace lockstep::testing {
namespace {

using data::Dataset;

TEST(BatchSizes, DivideTheGlobalBatchEvenly) { EXPECT_THAT(batch_sizes_for_worker(8, 1, 4, 0), ElementsAre(2, 2, 2, 2)); }

TEST(RebatchRows, CutsBatches) {
  EXPECT_EQ(batches(Dataset::range(8).batch(4).rebatch({2, 2})), (std::vector<Ints>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(RebatchRows, TheLastBatchMayBeSmaller) {
  EXPECT_EQ(batches(Dataset::range(5).batch(4).rebatch({2, 2})), (std::vector<Ints>{{0, 1}, {2, 3}, {4}}));
}

TEST(RebatchRows, JoinsBatches) {
  EXPECT_EQ(batches(Dataset::range(12).batch(4).rebatch({6})), (std::vector<Ints>{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}));
}

TEST(RebatchRows, ASizeOfZeroIsABatchWithoutRows) {
  EXPECT_EQ(batches(Dataset::range(8).batch(4).rebatch({1, 1, 1, 1, 0})),
            (std::vector<Ints>{{0}, {1}, {2}, {3}, {}, {4}, {5}, {6}, {7}, {}}));
  EXPECT_EQ(batches(Dataset::range(4).batch(4).rebatch({1, 0})), (std::vector<Ints>{{0}, {}, {1}, {}, {2}, {}, {3}, {}}));
}

TEST(RebatchRows, RefusesScalars) {
  EXPECT_EQ(code_of([] { batches(Dataset::range(4).rebatch({2})); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::testing
