#include <ATen/ATen.h>

#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/testing.h"

// What experimental_local_results gives for structures with distributed values in them.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::ElementsAre;
using ::testing::Pair;

PerReplica<double> numbers(double a, double b) { return PerReplica<double>({a, b}); }

TEST(LocalResults, OfATupleAreOneTupleForEachReplica) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.experimental_local_results(std::tuple(numbers(1, 2), 7.0));
  EXPECT_THAT(results, ElementsAre(std::tuple(1.0, 7.0), std::tuple(2.0, 7.0)));
}

TEST(LocalResults, OfAVectorOrAMapHaveTheComponentsInTheirPlaces) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(strategy.experimental_local_results(std::vector{numbers(1, 2), numbers(3, 4)}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
  EXPECT_THAT(strategy.experimental_local_results(std::map<std::string, PerReplica<double>>{{"a", numbers(1, 2)}}),
              ElementsAre(ElementsAre(Pair("a", 1)), ElementsAre(Pair("a", 2))));
}

TEST(LocalResults, OfNestedStructuresAreSelectedAtEveryDepth) {
  MirroredStrategy strategy(cpus(2));
  const std::vector nested{std::pair(numbers(1, 2), std::tuple(numbers(3, 4)))};
  EXPECT_THAT(strategy.experimental_local_results(nested),
              ElementsAre(ElementsAre(Pair(1, std::tuple(3.0))), ElementsAre(Pair(2, std::tuple(4.0)))));
}

TEST(LocalResults, OfAPlainStructureAreTheStructureItself) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(strategy.experimental_local_results(std::vector{1, 2}), ElementsAre(ElementsAre(1, 2)));
}

TEST(LocalResults, NestedArgumentsOfRunArriveAsTheReplicasOwn) {
  MirroredStrategy strategy(cpus(2));
  const std::vector nested{std::tuple(numbers(1, 2), numbers(10, 20))};
  const auto sums = strategy.run(
      [](const std::vector<std::tuple<double, double>>& mine) { return std::get<0>(mine[0]) + std::get<1>(mine[0]); }, nested);
  EXPECT_THAT(sums.values(), ElementsAre(11, 22));
}

TEST(BatchReduceTo, TakesRowsOfSparseValuesToo) {
  MirroredStrategy strategy(cpus(2));
  const auto rows = [](double value, std::int64_t row) {
    return IndexedSlices{at::full({1, 2}, value), at::tensor({row}), {4, 2}};
  };
  const PerReplica<IndexedSlices> value({rows(1, 0), rows(2, 3)});
  const auto reduced = strategy.extended().batch_reduce_to(
      "sum", std::vector<StrategyExtended::SlicesAndDestinations>{{value, {"CPU:0"}}, {value, {"CPU:1"}}});
  ASSERT_EQ(reduced.size(), 2);
  const auto expected = at::tensor({1.0f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 2.0f, 2.0f}).reshape({4, 2});
  for (const auto& slices : reduced) EXPECT_TRUE(at::equal(to_dense(slices[0]), expected));
}

}  // namespace
}  // namespace lockstep
