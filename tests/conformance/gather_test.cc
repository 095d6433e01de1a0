#include <tuple>

#include "tests/conformance/testing.h"

// gather and all_gather: the replicas' tensors one after the other.

namespace lockstep::testing {
namespace {

// Replica r gives ones with r + 1 elements in dimension `axis` of two.
at::Tensor growing_ones(const ReplicaContext& context, std::int64_t axis) {
  const auto length = context.replica_id_in_sync_group() + 1;
  return axis == 0 ? at::ones({length, 1}) : at::ones({1, length});
}

PerReplica<at::Tensor> growing_ones(Strategy& strategy, std::int64_t axis) {
  return strategy.run([=](ReplicaContext& context) { return growing_ones(context, axis); });
}

PerReplica<at::Tensor> row(Strategy& strategy) {
  return strategy.run([] { return vec({1, 2, 3}).unsqueeze(0); });
}

at::Tensor of_rank(std::int64_t rank) { return rank == 1 ? at::ones({1}) : at::ones({1, 2}); }

TEST(Gather, PutsRowsBelowEachOther) {
  MirroredStrategy strategy(cpus(2));
  const auto all = strategy.gather(row(strategy), 0);
  EXPECT_EQ(all.sizes(), (Ints{2, 3}));
  EXPECT_THAT(floats(all), ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(Gather, PutsColumnsBesideEachOther) {
  MirroredStrategy strategy(cpus(2));
  const auto all = strategy.gather(row(strategy), 1);
  EXPECT_EQ(all.sizes(), (Ints{1, 6}));
  EXPECT_THAT(floats(all), ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST(Gather, LengthsMayDifferAlongTheFirstAxis) {
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(n));
    EXPECT_TRUE(at::equal(strategy.gather(growing_ones(strategy, 0), 0), at::ones({n * (n + 1) / 2, 1})));
  }
}

TEST(Gather, LengthsMayDifferAlongTheSecondAxis) {
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(n));
    EXPECT_TRUE(at::equal(strategy.gather(growing_ones(strategy, 1), 1), at::ones({1, n * (n + 1) / 2})));
  }
}

TEST(Gather, MakesIndexedSlicesDense) {
  MirroredStrategy strategy(cpus(2));
  const auto slices = strategy.run([](ReplicaContext& context) {
    return IndexedSlices{at::full({1, 1}, context.replica_id_in_sync_group() + 1.0), ints_vec({1}), {2, 1}};
  });
  EXPECT_THAT(floats(strategy.gather(slices, 0)), ElementsAre(0, 1, 0, 2));
}

TEST(Gather, RefusesOtherDimensionsThatDiffer) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(code_of([&] { strategy.gather(growing_ones(strategy, 0), 1); }), ErrorCode::kInvalidArgument);
}

TEST(Gather, RefusesDifferentRanks) {
  MirroredStrategy strategy(cpus(2));
  const PerReplica<at::Tensor> value({of_rank(1), of_rank(2)});
  EXPECT_EQ(code_of([&] { strategy.gather(value, 0); }), ErrorCode::kInvalidArgument);
}

TEST(AllGather, LengthsMayDifferAlongTheAxis) {
  MirroredStrategy strategy(cpus(2));
  for (const std::int64_t axis : {0, 1}) {
    const auto all =
        strategy.run([&](ReplicaContext& context) { return context.all_gather(growing_ones(context, axis), axis); });
    for (const auto& of_replica : all) EXPECT_TRUE(at::equal(of_replica, axis == 0 ? at::ones({3, 1}) : at::ones({1, 3})));
  }
}

TEST(AllGather, GathersEveryLeafOfAStructure) {
  MirroredStrategy strategy(cpus(2));
  const auto all = strategy.run([](ReplicaContext& context) {
    const auto deep = vec({1, 2, 1, 2}).view({1, 2, 2});
    return context.all_gather(std::vector<at::Tensor>{growing_ones(context, 1), deep}, 1);
  });
  for (const auto& of_replica : all) {
    EXPECT_TRUE(at::equal(of_replica[0], at::ones({1, 3})));
    EXPECT_EQ(of_replica[1].sizes(), (Ints{1, 4, 2}));
    EXPECT_THAT(floats(of_replica[1]), ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  }
}

template <typename F>
std::optional<ErrorCode> code_of_all_gather(std::int64_t axis, F make) {
  MirroredStrategy strategy(cpus(2));
  return code_of([&] { strategy.run([&](ReplicaContext& context) { context.all_gather(make(context), axis); }); });
}

TEST(AllGather, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(code_of_all_gather(1, [](ReplicaContext& context) { return growing_ones(context, 0); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of_all_gather(0, [](ReplicaContext& context) { return of_rank(context.replica_id_in_sync_group() + 1); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of_all_gather(0,
                               [](ReplicaContext&) {
                                 return IndexedSlices{at::ones({1, 1}), ints_vec({0}), {2, 1}};
                               }),
            ErrorCode::kUnimplemented);
}

TEST(AllGather, TheGradientIsTheReplicasPartOfTheSum) {
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(n));
    const auto gradients = strategy.run([](ReplicaContext& context) {
      const auto x = vec({3, 5}).view({2, 1}).set_requires_grad(true);
      const auto y = context.all_gather(x, 1) * (context.replica_id_in_sync_group() + 1);
      return torch::autograd::grad({y.sum()}, {x})[0];
    });
    const double sum = n * (n + 1) / 2.0;
    for (const auto& gradient : gradients) {
      EXPECT_EQ(gradient.sizes(), (Ints{2, 1}));
      EXPECT_THAT(floats(gradient), ElementsAre(sum, sum));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
