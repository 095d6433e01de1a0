#include <ATen/ATen.h>

#include "lockstep/collective/reduce_values.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;
using Tensors = std::vector<at::Tensor>;

Tensors full(std::size_t count, double value, at::ScalarType dtype) {
  Tensors tensors;
  for (std::size_t k = 0; k < count; ++k) tensors.push_back(at::full({100}, value, dtype));
  return tensors;
}

TEST(TreeSumTensors, WritesTheGivenElementsOfEveryOutputAndNoOther) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kHalf, at::kShort}) {
    const auto inputs = full(3, 2, dtype);
    auto outputs = full(2, -1, dtype);
    tree_sum_tensors(inputs, outputs, {10, 90});
    for (const auto& output : outputs) {
      EXPECT_TRUE(output.slice(0, 10, 90).eq(6).all().item<bool>()) << dtype;
      EXPECT_TRUE(output.slice(0, 0, 10).eq(-1).all().item<bool>()) << dtype;
      EXPECT_TRUE(output.slice(0, 90).eq(-1).all().item<bool>()) << dtype;
    }
  }
}

TEST(TreeSumTensors, OutputsMayBeTheInputs) {
  for (const auto dtype : {at::kFloat, at::kHalf})
    for (const std::size_t count : {1, 2, 3, 9}) {
      auto values = full(count, 1, dtype);
      tree_sum_tensors(values, values, {0, 100});
      for (const auto& value : values) EXPECT_TRUE(value.eq(static_cast<double>(count)).all().item<bool>()) << count << dtype;
    }
}

TEST(TreeSumTensors, NoElementsAreNoWork) {
  const auto inputs = full(2, 1, at::kFloat);
  auto outputs = full(2, -1, at::kFloat);
  tree_sum_tensors(inputs, outputs, {50, 50});
  tree_sum_tensors(inputs, outputs, {60, 50});
  for (const auto& output : outputs) EXPECT_TRUE(output.eq(-1).all().item<bool>());
}

TEST(TreeSumTensors, DividesFloatingPointSums) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const int divisor : {1, 2, 3, 4}) {
      for (const std::size_t count : {2, 3, 4}) {
        auto values = full(count, 1, dtype);
        tree_sum_tensors(values, values, {0, 100, divisor});
        const auto expected = at::full({100}, static_cast<double>(count), dtype) / at::full({100}, divisor, dtype);
        for (const auto& value : values) EXPECT_TRUE(at::equal(value, expected)) << count << " by " << divisor << " " << dtype;
      }
    }
}

TEST(TreeSumTensors, DoesNotDivideIntegers) {
  for (const auto dtype : {at::kLong, at::kInt, at::kShort})
    for (const std::size_t count : {2, 3}) {
      auto values = full(count, 3, dtype);
      tree_sum_tensors(values, values, {0, 100, 2});
      for (const auto& value : values) EXPECT_TRUE(value.eq(static_cast<std::int64_t>(3 * count)).all().item<bool>()) << dtype;
    }
}

TEST(TreeSumTensors, FollowsTheMemoryOrderAndTheOffsetOfItsTensors) {
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const auto table = at::arange(60, at::kFloat).to(dtype).view({6, 10});
    const Tensors inputs = {table.narrow(0, 1, 4).t(), table.narrow(0, 2, 4).t()};
    Tensors outputs = {at::zeros({4, 10}, dtype).t()};
    tree_sum_tensors(inputs, outputs, {0, 40});
    EXPECT_TRUE(at::equal(outputs[0], inputs[0] + inputs[1])) << dtype;
  }
}

TEST(ConcatenateValues, PutsThemOneAfterTheOtherAlongTheAxis) {
  const Tensors rows = {at::ones({2, 3}), at::zeros({1, 3}), at::ones({0, 3})};
  EXPECT_TRUE(at::equal(concatenate_values(rows, 0), at::cat(rows, 0)));
  const Tensors columns = {at::ones({2, 3}), at::zeros({2, 1})};
  EXPECT_TRUE(at::equal(concatenate_values(columns, 1), at::cat(columns, 1)));
}

TEST(ConcatenateValues, TheAxisMustExist) {
  const Tensors values = {at::ones({2, 3}), at::ones({2, 3})};
  for (const std::int64_t axis : {-1, 2})
    EXPECT_THAT([&] { concatenate_values(values, axis); },
                ThrowsCode(ErrorCode::kInvalidArgument, str("axis ", axis), "[0, 2)"));
  const Tensors scalars = {at::scalar_tensor(1), at::scalar_tensor(2)};
  EXPECT_THAT([&] { concatenate_values(scalars, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "axis 0"));
}

TEST(ConcatenateValues, SizesMayDifferAlongTheAxisOnly) {
  const auto first = at::ones({2, 3});
  for (const auto& other : {at::ones({2, 4}), at::ones({2}), at::ones({2, 3, 1}), at::ones({2, 3}, at::kDouble)}) {
    const Tensors values = {first, first, other};
    EXPECT_THAT([&] { concatenate_values(values, 0); },
                ThrowsCode(ErrorCode::kInvalidArgument, "replica 2", "in dimension 0 only"));
  }
}

}  // namespace
}  // namespace lockstep
