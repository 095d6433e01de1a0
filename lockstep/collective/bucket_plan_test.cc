#include "lockstep/collective/bucket_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/collective/communication_options.h"

namespace lockstep {
namespace {

TEST(BucketPlan, NewestGradientsComeFirst) {
  const std::vector<GradientInfo> gradients = {{.elements = 16}, {.elements = 16}, {.elements = 16}};
  const auto buckets = plan_buckets(gradients, 1 << 20);
  ASSERT_EQ(buckets.size(), 1U);
  EXPECT_EQ(buckets[0].members[0].gradient, 2U);
  EXPECT_EQ(buckets[0].members[2].gradient, 0U);
  EXPECT_EQ(buckets[0].elements, 48);
}

TEST(BucketPlan, SplitsBySizeDtypeAndDevice) {
  const std::vector<GradientInfo> gradients = {{.dtype = 0, .elements = 100},
                                               {.dtype = 1, .elements = 100},
                                               {.dtype = 0, .device = 1, .elements = 100},
                                               {.elements = 100}};
  EXPECT_EQ(plan_buckets(gradients, 1 << 20).size(), 3U);
  EXPECT_EQ(plan_buckets(gradients, 1).size(), 4U);
}

TEST(BucketPlan, EveryGradientHasItsOwnCacheLines) {
  std::vector<GradientInfo> gradients;
  for (std::int64_t i = 0; i < 50; ++i) gradients.push_back({.elements = 1 + i * 7 % 40});
  std::set<std::size_t> seen;
  for (const auto& bucket : plan_buckets(gradients, 500)) {
    std::int64_t end = 0;
    for (const auto& member : bucket.members) {
      EXPECT_TRUE(seen.insert(member.gradient).second);
      EXPECT_EQ(member.offset % 16, 0);
      EXPECT_GE(member.offset, end);
      end = member.offset + gradients[member.gradient].elements;
    }
    EXPECT_LE(end, bucket.elements);
  }
  EXPECT_EQ(seen.size(), gradients.size());
}

TEST(GroupBySize, BeginsANewPackOnceTheCurrentOneIsLarger) {
  EXPECT_EQ(group_by_size({128, 32, 800, 4}, 200), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(group_by_size({128, 32, 800, 4}, 0), (std::vector<std::int64_t>{4}));
  EXPECT_TRUE(group_by_size({}, 10).empty());
}

}  // namespace
}  // namespace lockstep
