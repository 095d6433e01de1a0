#include "lockstep/data/rebatch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(RebatchPlan, BalancedPartsDifferByAtMostOneLargerFirst) {
  EXPECT_EQ(balanced_parts(4, 3), (Sizes{2, 1, 1}));
  EXPECT_EQ(balanced_parts(7, 3), (Sizes{3, 2, 2}));
  EXPECT_EQ(balanced_parts(6, 3), (Sizes{2, 2, 2}));
  EXPECT_EQ(balanced_parts(1, 4), (Sizes{1, 0, 0, 0}));
  EXPECT_EQ(balanced_parts(0, 2), (Sizes{0, 0}));
  for (std::int64_t rows = 0; rows < 40; ++rows) {
    for (std::int64_t parts = 1; parts < 10; ++parts) {
      const auto sizes = balanced_parts(rows, parts);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), rows);
      EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater<>()));
      EXPECT_LE(sizes.front() - sizes.back(), 1);
    }
  }
}

TEST(RebatchPlan, CeilingPartsAreThePeersOlderSplit) {
  EXPECT_EQ(ceiling_parts(4, 3), (Sizes{2, 2, 0}));
  EXPECT_EQ(ceiling_parts(7, 3), (Sizes{3, 3, 1}));
  EXPECT_EQ(ceiling_parts(1, 2), (Sizes{1, 0}));
  EXPECT_EQ(ceiling_parts(14, 8), (Sizes{2, 2, 2, 2, 2, 2, 2, 0}));
}

TEST(RebatchPlan, WorkersUseRotatedLists) {
  EXPECT_EQ(batch_sizes_for_worker(8, 2, 2, 1), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 0), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 1), (Sizes{2, 1, 2, 2}));
  EXPECT_EQ(batch_sizes_for_worker(4, 3, 1, 0), (Sizes{2, 1, 1}));
  EXPECT_EQ(batch_sizes_for_worker(4, 3, 1, 1), (Sizes{1, 1, 2}));
  EXPECT_EQ(batch_sizes_for_worker(4, 3, 1, 2), (Sizes{1, 2, 1}));
  EXPECT_EQ(batch_sizes_for_worker(4, 1, 5, 0), (Sizes{1, 1, 1, 1, 0}));
  EXPECT_EQ(batch_sizes_for_worker(1, 3, 2, 1), (Sizes{0, 0, 0, 0, 1, 0}));
}

TEST(RebatchPlan, EveryStepUsesTheWholeGlobalBatch) {
  for (std::int64_t batch = 1; batch < 20; ++batch) {
    for (std::int64_t workers = 1; workers < 5; ++workers) {
      for (std::int64_t replicas = 1; replicas < 4; ++replicas) {
        for (std::int64_t step = 0; step < workers; ++step) {
          std::int64_t rows = 0;
          for (std::int64_t worker = 0; worker < workers; ++worker) {
            const auto sizes = batch_sizes_for_worker(batch, workers, replicas, worker);
            for (std::int64_t r = 0; r < replicas; ++r) rows += sizes[static_cast<std::size_t>(step * replicas + r)];
          }
          EXPECT_EQ(rows, batch);
        }
      }
    }
  }
}

TEST(RebatchPlan, RefusesWhatCannotBe) {
  const auto code = [](std::int64_t batch, std::int64_t workers, std::int64_t replicas, std::int64_t worker) {
    try {
      batch_sizes_for_worker(batch, workers, replicas, worker);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(code(0, 1, 1, 0));
  EXPECT_TRUE(code(4, 0, 1, 0));
  EXPECT_TRUE(code(4, 1, 0, 0));
  EXPECT_TRUE(code(4, 2, 1, 2));
  EXPECT_TRUE(code(4, 2, 1, -1));
}

}  // namespace
}  // namespace lockstep
