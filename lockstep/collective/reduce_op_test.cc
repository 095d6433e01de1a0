#include "lockstep/collective/reduce_op.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

TEST(ReduceOp, IsNamedInAnyCase) {
  for (const char* name : {"SUM", "sum", "Sum"}) EXPECT_EQ(ReduceOpArg(name), ReduceOp::kSum) << name;
  for (const char* name : {"MEAN", "mean", "mEAN"}) EXPECT_EQ(ReduceOpArg(std::string(name)), ReduceOp::kMean) << name;
  EXPECT_EQ(ReduceOpArg(ReduceOp::kMean), ReduceOp::kMean);
}

TEST(ReduceOp, AnotherNameIsRefused) {
  for (const char* name : {"", "max", "sum "})
    EXPECT_THAT([&] { ReduceOpArg{name}; }, ThrowsCode(ErrorCode::kInvalidArgument, "is not a ReduceOp", "SUM or MEAN"));
}

TEST(ReduceOp, IsWrittenAsItsName) { EXPECT_EQ(str(ReduceOp::kSum, " ", ReduceOp::kMean), "SUM MEAN"); }

}  // namespace
}  // namespace lockstep
