#include "lockstep/data/ops/ops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/data/dataset.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::code_of;
using testing::Ints;
using testing::numbers;
using testing::values;

Ints sorted(Ints all) {
  std::ranges::sort(all);
  return all;
}

TEST(Shuffle, KeepsEveryElementOnce) {
  for (const std::int64_t buffer : {1, 3, 50, 99, 100, 1000})
    EXPECT_EQ(sorted(values(Dataset::range(100).shuffle(buffer))), numbers(100));
  EXPECT_EQ(values(Dataset::range(100).shuffle(1)), numbers(100));
  EXPECT_EQ(values(Dataset::range(0).shuffle(10)), Ints{});
}

TEST(Shuffle, SeedFixesTheOrderOfEveryPass) {
  const auto a = Dataset::range(100).shuffle(100, 42);
  const auto b = Dataset::range(100).shuffle(100, 42);
  const auto first = values(a);
  const auto second = values(a);
  EXPECT_NE(first, second);
  EXPECT_EQ(values(b), first);
  EXPECT_EQ(values(b), second);
  EXPECT_NE(values(Dataset::range(100).shuffle(100, 43)), first);
}

TEST(Shuffle, KeepsOneOrderWhenNotReshuffling) {
  const auto dataset = Dataset::range(100).shuffle(100, std::nullopt, false);
  const auto first = values(dataset);
  EXPECT_EQ(values(dataset), first);
  EXPECT_NE(first, numbers(100));
  const auto twice = values(dataset.repeat(2));
  EXPECT_EQ(Ints(twice.begin() + 100, twice.end()), first);
}

TEST(Shuffle, RepeatedPassesDiffer) {
  const auto twice = values(Dataset::range(100).shuffle(100, 1).repeat(2));
  EXPECT_NE(Ints(twice.begin(), twice.begin() + 100), Ints(twice.begin() + 100, twice.end()));
}

TEST(Shuffle, ManualSeedMakesUnseededShufflesRepeatable) {
  const auto order = [] {
    at::manual_seed(5);
    return values(Dataset::range(100).shuffle(100));
  };
  EXPECT_EQ(order(), order());
  EXPECT_NE(values(Dataset::range(100).shuffle(100)), values(Dataset::range(100).shuffle(100)));
}

TEST(Shuffle, DrawsNoFurtherAheadThanTheBuffer) {
  const auto order = values(Dataset::range(1000).shuffle(10, 3));
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_LT(order[static_cast<std::size_t>(i)], i + 10);
}

TEST(Shuffle, EveryOrderIsEquallyLikely) {
  // 6 orders of 3 elements, 6000 draws: a chi-squared statistic with 5 degrees of freedom, above 25 once in 7000 runs;
  // the seed is fixed, so it is one draw for ever.
  std::array<int, 27> counts{};
  const auto dataset = Dataset::range(3).shuffle(3, 11);
  for (int i = 0; i < 6000; ++i) {
    const auto order = values(dataset);
    ++counts[static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  double statistic = 0;
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    statistic += std::pow(count - 1000, 2) / 1000;
  }
  EXPECT_EQ(orders, 6);
  EXPECT_LT(statistic, 25);
}

TEST(Shuffle, RefusesAnEmptyBuffer) {
  EXPECT_EQ(code_of([] { Dataset::range(3).shuffle(0); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
