#include <future>
#include <thread>

#include "tests/conformance/testing.h"

// The ways of bringing values of several devices together: they give the same numbers.

namespace lockstep::testing {
namespace {

std::vector<std::shared_ptr<const CrossDeviceOps>> all_cross_device_ops() {
  return {nullptr,
          std::make_shared<ReductionToOneDevice>(),
          std::make_shared<ReductionToOneDevice>("CPU:0",
                                                 [](std::span<const at::Tensor> values) {
                                                   auto sum = values[0];
                                                   for (const auto& value : values.subspan(1)) sum = sum + value;
                                                   return sum;
                                                 }),
          std::make_shared<NcclAllReduce>(),
          std::make_shared<NcclAllReduce>(2),
          std::make_shared<HierarchicalCopyAllReduce>(),
          std::make_shared<HierarchicalCopyAllReduce>(8)};
}

TEST(CrossDeviceOps, GiveTheSameForEveryKindOfDestination) {
  for (const int n : {1, 2, 4}) {
    for (const auto& ops : all_cross_device_ops()) {
      MirroredStrategy strategy(cpus(n), {.cross_device_ops = ops});
      const auto scope = strategy.scope();
      const Variable variable(0.0);
      const auto ids = strategy.run([](ReplicaContext& context) { return scalar(context.replica_id_in_sync_group()); });
      const auto next = strategy.run([](at::Tensor id) { return id + 1; }, ids);
      const double mean = (n - 1) / 2.0;
      const Destinations everywhere[] = {ids, variable, "/CPU:0", "/device:CPU:0", std::string("CPU:0")};
      for (const auto& destinations : everywhere) {
        auto& extended = strategy.extended();
        const auto results = {std::pair(extended.reduce_to("mean", ids, destinations), mean),
                              std::pair(extended.reduce_to("sum", ids, destinations), n * mean),
                              std::pair(extended.reduce_to("mean", next, destinations), mean + 1),
                              std::pair(extended.reduce_to("sum", next, destinations), n * (mean + 1))};
        for (const auto& [result, expected] : results)
          for (const double value : floats(result)) EXPECT_EQ(value, expected) << n << " replicas";
      }
      EXPECT_EQ(strategy.extended().reduce_to("sum", ids, ids).size(), static_cast<std::size_t>(n));
      EXPECT_EQ(strategy.extended().reduce_to("sum", ids, variable).size(), static_cast<std::size_t>(n));
      EXPECT_EQ(strategy.extended().reduce_to("sum", ids, "CPU:0").size(), 1u);
    }
  }
}

TEST(CrossDeviceOps, ReduceTheComponentsOfAVariable) {
  for (const auto& ops : all_cross_device_ops()) {
    MirroredStrategy strategy(cpus(2), {.cross_device_ops = ops});
    const auto scope = strategy.scope();
    const Variable variable(1.0);
    const auto mean = strategy.cross_device_ops().reduce(ReduceOp::kMean, variable.components());
    const auto copies = strategy.extended().broadcast_to(mean, variable);
    EXPECT_THAT(floats(copies), ElementsAre(1, 1));
  }
}

TEST(CrossDeviceOps, ServeSeveralThreadsAtOnce) {
  MirroredStrategy strategy(cpus(2));
  const auto reduce_often = [&](double value) {
    const auto ones = scalars({value, value});
    for (int round = 0; round < 50; ++round) {
      const auto sums = strategy.extended().batch_reduce_to("sum", {{ones, ones}, {ones, ones}});
      for (const auto& sum : sums) EXPECT_EQ(floats(sum), (Floats{2 * value, 2 * value}));
      const auto reduced = strategy.run([&](ReplicaContext& context) {
        if (round % 10 == context.replica_id_in_sync_group()) std::this_thread::yield();
        return context.all_reduce("sum", std::vector<at::Tensor>{scalar(value), scalar(value)});
      });
      for (const auto& of_replica : reduced) EXPECT_EQ(floats(of_replica), (Floats{2 * value, 2 * value}));
    }
  };
  auto other = std::async(std::launch::async, [&] { reduce_often(2); });
  reduce_often(1);
  other.get();
}

TEST(CrossDeviceOps, RefuseANegativeNumberOfPacks) {
  EXPECT_EQ(code_of([] { NcclAllReduce ops(-1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { HierarchicalCopyAllReduce ops(-1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { NcclAllReduce ops(0); }), std::nullopt);
}

}  // namespace
}  // namespace lockstep::testing
