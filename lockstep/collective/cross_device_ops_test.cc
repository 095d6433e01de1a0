#include "lockstep/collective/cross_device_ops.h"

#include <ATen/ATen.h>

#include "lockstep/collective/reduce_values.h"
#include "tests/support/testing.h"

// The objects themselves; tests/conformance runs them under a strategy.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::HasSubstr;
using testing::ThrowsCode;
using Tensors = std::vector<at::Tensor>;

std::vector<std::shared_ptr<const CrossDeviceOps>> all_kinds() {
  return {default_cross_device_ops(), std::make_shared<ReductionToOneDevice>(), std::make_shared<ReductionToOneDevice>("CPU:1"),
          std::make_shared<NcclAllReduce>(), std::make_shared<HierarchicalCopyAllReduce>(0)};
}

Tensors some_values() { return {at::full({3}, 0.1F), at::full({3}, 1e8F), at::full({3}, -1e8F)}; }

TEST(CrossDeviceOpsKinds, AllGiveTheBitsOfTheCanonicalOrder) {
  const auto values = some_values();
  for (const auto& ops : all_kinds())
    for (const auto op : {ReduceOp::kSum, ReduceOp::kMean})
      EXPECT_TRUE(at::equal(ops->reduce(op, values), reduce_values(op, values))) << ops->explain(cpus(3)) << op;
}

TEST(CrossDeviceOpsKinds, AllRefuseValuesThatDifferAndNoValues) {
  for (const auto& ops : all_kinds()) {
    EXPECT_THAT(
        [&] {
          ops->reduce(ReduceOp::kSum, Tensors{at::ones({2}), at::ones({3})});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "replica 1"));
    EXPECT_THAT([&] { ops->reduce(ReduceOp::kSum, {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no value"));
  }
}

TEST(ReductionToOneDevice, AnAccumulationFunctionAddsAndTheMeanIsOurs) {
  std::size_t given = 0;
  const ReductionToOneDevice ops("", [&](std::span<const at::Tensor> values) {
    given = values.size();
    return (values[0] + values[1]) + values[2];
  });
  const Tensors values = {at::full({2}, 1.0), at::full({2}, 2.0), at::full({2}, 6.0)};
  EXPECT_TRUE(at::equal(ops.reduce(ReduceOp::kSum, values), at::full({2}, 9.0)));
  EXPECT_EQ(given, 3U);
  EXPECT_TRUE(at::equal(ops.reduce(ReduceOp::kMean, values), at::full({2}, 3.0)));
}

TEST(ReductionToOneDevice, AnAccumulationFunctionNeverSeesValuesThatDiffer) {
  bool was_called = false;
  const ReductionToOneDevice ops("", [&](std::span<const at::Tensor> values) {
    was_called = true;
    return values[0];
  });
  EXPECT_THAT(
      [&] {
        ops.reduce(ReduceOp::kSum, Tensors{at::ones({2}), at::ones({3})});
      },
      ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_FALSE(was_called);
}

TEST(ReductionToOneDevice, ItsDeviceMustExist) {
  EXPECT_THAT([] { ReductionToOneDevice("GPU:99").reduce(ReduceOp::kSum, some_values()); },
              ThrowsCode(ErrorCode::kInvalidArgument, "GPU:99"));
}

TEST(CrossDeviceOpsKinds, ExplainWhereValuesAreAdded) {
  EXPECT_THAT(ReductionToOneDevice().explain(cpus(2)), HasSubstr("CPU:0"));
  EXPECT_THAT(ReductionToOneDevice("CPU:1").explain(cpus(2)), HasSubstr("CPU:1"));
  EXPECT_THAT(NcclAllReduce(3).explain(cpus(2)), ::testing::AllOf(HasSubstr("num_packs 3"), HasSubstr("no GPU")));
  EXPECT_THAT(NcclAllReduce().explain({"GPU:0", "GPU:1"}), ::testing::Not(HasSubstr("no GPU")));
  EXPECT_THAT(HierarchicalCopyAllReduce(2).explain(cpus(4)),
              ::testing::AllOf(HasSubstr("num_packs 2"), HasSubstr("4 devices")));
}

TEST(CrossDeviceOpsKinds, ANegativeNumberOfPacksIsNamed) {
  EXPECT_THAT([] { NcclAllReduce ops(-1); }, ThrowsCode(ErrorCode::kInvalidArgument, "NcclAllReduce", "num_packs is -1"));
  EXPECT_THAT([] { HierarchicalCopyAllReduce ops(-2); },
              ThrowsCode(ErrorCode::kInvalidArgument, "HierarchicalCopyAllReduce", "num_packs is -2"));
}

}  // namespace
}  // namespace lockstep
