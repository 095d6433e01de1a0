#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

TEST(VariableUse, ArithmeticReadsTheValueHere) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  const Variable v(3.0);
  EXPECT_EQ((v + 1).item<float>(), 4);
  EXPECT_EQ((v * v).item<float>(), 9);
  EXPECT_EQ((v - at::ones({})).item<float>(), 2);
}

TEST(VariableUse, AllReduceOfAVariableReducesItsComponents) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  Variable v(0.0, {.synchronization = VariableSynchronization::kOnRead, .aggregation = VariableAggregation::kSum});
  const auto sums = strategy.run([&](ReplicaContext& context) {
    v.assign(1.0 + context.replica_id_in_sync_group());
    return context.all_reduce("sum", v);
  });
  for (const auto& sum : sums) EXPECT_EQ(sum.item<float>(), 3);
}

TEST(VariableUse, MadeOutsideScopeItIsRefusedInsideAReplica) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  Variable v(1.0, {.name = "outside"});
  EXPECT_THAT([&] { strategy.run([&] { v.assign_add(at::ones({})); }); }, ThrowsCode(ErrorCode::kFailedPrecondition));
  EXPECT_THAT([&] { strategy.run([&] { return v.value(); }); }, ThrowsCode(ErrorCode::kFailedPrecondition));
  EXPECT_EQ(v.value().item<float>(), 1);
}

TEST(VariableUse, DifferentWritesAtOnePointAreRefused) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  Variable a(0.0, {.name = "a", .aggregation = VariableAggregation::kSum});
  Variable b(0.0, {.name = "b", .aggregation = VariableAggregation::kSum});
  EXPECT_THAT(
      [&] {
        strategy.run([&](ReplicaContext& context) { (context.replica_id_in_sync_group() == 0 ? a : b).assign(at::ones({})); });
      },
      ThrowsCode(ErrorCode::kFailedPrecondition));
}

}  // namespace
}  // namespace lockstep
