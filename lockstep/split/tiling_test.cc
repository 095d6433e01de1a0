#include "lockstep/split/tiling.h"

#include <gmock/gmock.h>

namespace lockstep::split {
namespace {

using ::testing::ElementsAre;

TEST(Tiling, IsRowByRow) {
  const Tiling tiling({4, 6}, {2, 3});
  EXPECT_EQ(tiling.tiles(), 6U);
  EXPECT_THAT(tiling.tile(0), ElementsAre(Range{0, 2}, Range{0, 2}));
  EXPECT_THAT(tiling.tile(4), ElementsAre(Range{2, 4}, Range{2, 4}));
  for (std::size_t k = 0; k < tiling.tiles(); ++k) EXPECT_EQ(tiling.index(tiling.position(k)), k);
}

TEST(Tiling, PutsLargerPartsFirst) { EXPECT_THAT(even_cuts(7, 3), ElementsAre(0, 3, 5, 7)); }

TEST(Tiling, IsOfOneTileWithoutCuts) {
  EXPECT_EQ(Tiling({3, 4}).tiles(), 1U);
  EXPECT_EQ(Tiling(std::vector<std::int64_t>{}).tiles(), 1U);
  EXPECT_EQ(Tiling({4, 6}, {2, 3}).without_cuts(1, 5).sizes(), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(Tiling({4, 6}, {2, 3}).without(0).tiles(), 3U);
}

TEST(Tiling, RegionsThatDoNotMeetAreEmpty) {
  EXPECT_TRUE(is_empty(intersection({{0, 2}, {0, 2}}, {{2, 4}, {0, 2}})));
  EXPECT_THAT(intersection({{0, 3}}, {{2, 4}}), ElementsAre(Range{2, 3}));
}

}  // namespace
}  // namespace lockstep::split
