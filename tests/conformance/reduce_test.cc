#include <tuple>
#include <utility>

#include "tests/conformance/testing.h"

// Strategy::reduce and StrategyExtended::reduce_to: values of all replicas become one, outside run().

namespace lockstep::testing {
namespace {

at::Tensor matrix(const Floats& values) { return vec(values).view({-1, 2}); }

TEST(Reduce, AMeanOfAPlainValueIsTheValue) {
  MirroredStrategy mirrored(cpus(2));
  OneDeviceStrategy one_device("CPU:0");
  for (Strategy* strategy : {static_cast<Strategy*>(&mirrored), static_cast<Strategy*>(&one_device), &default_strategy()}) {
    EXPECT_EQ(strategy->reduce("mean", 1.0), 1.0);
    EXPECT_THAT(floats(strategy->reduce(ReduceOp::kMean, scalar(1))), ElementsAre(1));
  }
}

TEST(Reduce, RefusesUnknownOperations) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(code_of([&] { strategy.reduce("foo", scalars({1, 2})); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(floats(strategy.reduce("Sum", scalars({1, 2}))), ElementsAre(3));
  EXPECT_THAT(floats(strategy.reduce("MEAN", scalars({1, 2}))), ElementsAre(1.5));
}

TEST(Reduce, AddsTheReplicasValues) {
  MirroredStrategy strategy(cpus(2));
  const auto ids = strategy.run([](ReplicaContext& context) { return scalar(context.replica_id_in_sync_group()); });
  EXPECT_THAT(floats(strategy.reduce("sum", ids)), ElementsAre(1));
}

// Replica r gives r + 1 times the number r.
PerReplica<at::Tensor> growing(Strategy& strategy, at::ScalarType type) {
  return strategy.run([=](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    return at::full({id + 1}, id, type);
  });
}

TEST(Reduce, WithAnAxisAddsAlsoWithinTheReplicas) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(strategy.reduce("sum", growing(strategy, at::kFloat), 0)), ElementsAre(2));
  EXPECT_THAT(floats(strategy.reduce("sum", growing(strategy, at::kInt), 0)), ElementsAre(2));
}

TEST(Reduce, WithAnAxisAMeanWeighsElements) {
  MirroredStrategy strategy(cpus(2));
  for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong}) {
    const auto mean = strategy.reduce("mean", growing(strategy, type), 0);
    EXPECT_THAT(floats(mean), ElementsAre(::testing::DoubleNear(2.0 / 3, 1e-6)));
    EXPECT_EQ(mean.scalar_type(), type == at::kFloat ? at::kFloat : at::kDouble);
  }
}

TEST(Reduce, WithAnAxisCountsEveryReplica) {
  for (const int replicas : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto values = strategy.run([] { return vec({1, 2}); });
    EXPECT_THAT(floats(strategy.reduce("mean", values, 0)), ElementsAre(1.5));
    EXPECT_THAT(floats(strategy.reduce("sum", values, 0)), ElementsAre(3.0 * replicas));
  }
}

TEST(Reduce, WorksForOneAndForFourReplicas) {
  MirroredStrategy one(cpus(1));
  EXPECT_THAT(floats(one.reduce("sum", scalars({1}))), ElementsAre(1));
  EXPECT_THAT(floats(one.reduce("mean", scalars({1}))), ElementsAre(1));
  MirroredStrategy four(cpus(4));
  EXPECT_THAT(floats(four.reduce("sum", scalars({1, 2, 3, 4}))), ElementsAre(10));
  EXPECT_THAT(floats(four.reduce("mean", scalars({1, 2, 3, 4}))), ElementsAre(2.5));
}

TEST(Reduce, AddsAndDividesElementByElement) {
  MirroredStrategy strategy(cpus(2));
  const PerReplica<at::Tensor> values({matrix({1, 2, 0, 0, 3, 4}), matrix({0, 0, 5, 6, 7, 8})});
  EXPECT_THAT(floats(strategy.reduce("sum", values)), ElementsAre(1, 2, 5, 6, 10, 12));
  const PerReplica<at::Tensor> halved({matrix({1, 2, 0, 0, 3, 4}), at::zeros({3, 2})});
  EXPECT_THAT(floats(strategy.reduce("mean", halved)), ElementsAre(.5, 1, 0, 0, 1.5, 2));
}

const PerReplica<IndexedSlices> kSlices({{matrix({1, 2}), ints_vec({1}), {5, 2}},
                                         {matrix({3, 4, 5, 6}), ints_vec({1, 3}), {5, 2}}});
const PerReplica<IndexedSlices> kUnevenSlices({{vec({1}).view({-1, 1}), ints_vec({0}), {3, 1}},
                                               {vec({2, 3, 4}).view({-1, 1}), ints_vec({0, 1, 2}), {3, 1}}});

TEST(ReduceSlices, KeepsTheRowsOfAllReplicasInOrder) {
  MirroredStrategy strategy(cpus(2));
  const auto sum = strategy.reduce("sum", kSlices);
  EXPECT_THAT(floats(sum.values), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ints(sum.indices), ElementsAre(1, 1, 3));
  EXPECT_THAT(sum.dense_shape, ElementsAre(5, 2));
  EXPECT_THAT(floats(to_dense(sum)), ElementsAre(0, 0, 4, 6, 0, 0, 5, 6, 0, 0));
}

TEST(ReduceSlices, TakesDifferentNumbersOfRows) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(to_dense(strategy.reduce("sum", kUnevenSlices))), ElementsAre(3, 3, 4));
  EXPECT_THAT(floats(to_dense(strategy.reduce("mean", kUnevenSlices))), ElementsAre(1.5, 1.5, 2));
}

TEST(ReduceSlices, AMeanDividesTheRows) {
  MirroredStrategy strategy(cpus(2));
  const IndexedSlices none{at::zeros({0, 2}), ints_vec({}), {3, 2}};
  const PerReplica<IndexedSlices> values({{matrix({1, 2, 3, 4}), ints_vec({0, 2}), {3, 2}}, none});
  const auto mean = strategy.reduce("mean", values);
  EXPECT_THAT(floats(mean.values), ElementsAre(.5, 1, 1.5, 2));
  EXPECT_THAT(floats(to_dense(mean)), ElementsAre(.5, 1, 0, 0, 1.5, 2));
}

template <typename... T>
PerReplica<std::tuple<T...>> zip(const PerReplica<T>&... values) {
  std::vector<std::tuple<T...>> all;
  for (std::size_t r = 0; r < 2; ++r) all.emplace_back(values[r]...);
  return PerReplica<std::tuple<T...>>(std::move(all));
}

TEST(ReduceSlices, SeveralAtOnceAreEachReduced) {
  MirroredStrategy strategy(cpus(2));
  const auto [first, second] = strategy.reduce("sum", zip(kSlices, kUnevenSlices));
  EXPECT_THAT(floats(to_dense(first)), ElementsAre(0, 0, 4, 6, 0, 0, 5, 6, 0, 0));
  EXPECT_THAT(floats(to_dense(second)), ElementsAre(3, 3, 4));
}

TEST(ReduceSlices, MixWithDenseValuesInOrder) {
  MirroredStrategy strategy(cpus(2));
  const auto mixed = zip(scalars({1, 3}), kUnevenSlices, scalars({2, 4}));
  {
    const auto [first, sparse, last] = strategy.reduce("sum", mixed);
    EXPECT_THAT(floats(first), ElementsAre(4));
    EXPECT_THAT(floats(to_dense(sparse)), ElementsAre(3, 3, 4));
    EXPECT_THAT(floats(last), ElementsAre(6));
  }
  const auto [first, sparse, last] = strategy.reduce("mean", mixed);
  EXPECT_THAT(floats(first), ElementsAre(2));
  EXPECT_THAT(floats(to_dense(sparse)), ElementsAre(1.5, 1.5, 2));
  EXPECT_THAT(floats(last), ElementsAre(3));
}

TEST(ReduceTo, PutsThePlainValueOnTheDevice) {
  OneDeviceStrategy strategy("CPU:0");
  auto& extended = strategy.extended();
  EXPECT_THAT(floats(extended.reduce_to("mean", scalar(1), "/CPU:0")), ElementsAre(1));
  const auto results = extended.batch_reduce_to("mean", {{scalars({1}), "/CPU:0"}, {scalars({1}), "/CPU:0"}});
  ASSERT_EQ(results.size(), 2u);
  for (const auto& result : results) EXPECT_THAT(floats(result), ElementsAre(1));
}

TEST(ReduceTo, ABatchIsReducedValueByValue) {
  MirroredStrategy strategy(cpus(2));
  const auto first = scalars({1, 3});
  const auto second = scalars({2, 4});
  const auto sums = strategy.extended().batch_reduce_to("sum", {{first, first}, {second, second}});
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_THAT(floats(sums[0]), ElementsAre(4, 4));
  EXPECT_THAT(floats(sums[1]), ElementsAre(6, 6));
  const auto means = strategy.extended().batch_reduce_to("mean", {{first, first}, {second, second}});
  EXPECT_THAT(floats(means[0]), ElementsAre(2, 2));
  EXPECT_THAT(floats(means[1]), ElementsAre(3, 3));
}

}  // namespace
}  // namespace lockstep::testing
