#include "lockstep/collective/reduce_values.h"

#include <ATen/ATen.h>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;
using Tensors = std::vector<at::Tensor>;

at::Tensor numbers(std::initializer_list<double> values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(std::vector<double>(values), at::kDouble).to(dtype);
}

// As many tensors with values whose sum depends on the order.
Tensors uneven(int count, at::IntArrayRef shape, at::ScalarType dtype) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  Tensors values;
  for (int k = 0; k < count; ++k) values.push_back((at::randn(shape, generator, at::kDouble) * 1000).to(dtype));
  return values;
}

// The canonical order written down a second time.
at::Tensor reference_sum(Tensors values) {
  while (values.size() > 1) {
    Tensors next;
    for (std::size_t i = 0; i < values.size(); i += 2)
      next.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
    values = next;
  }
  return values[0];
}

TEST(SumValues, FollowsTheCanonicalOrderForEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kShort, at::kHalf, at::kBFloat16})
    for (const int count : {1, 2, 3, 5, 9, 12}) {
      const auto values = uneven(count, {7, 11}, dtype);
      const auto sum = sum_values(values);
      EXPECT_EQ(sum.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(sum, reference_sum(values))) << count << " of " << dtype;
    }
}

TEST(SumValues, LeavesTheValuesAlone) {
  const Tensors values = {numbers({1, 2}), numbers({10, 20})};
  EXPECT_TRUE(at::equal(sum_values(values), numbers({11, 22})));
  EXPECT_TRUE(at::equal(values[0], numbers({1, 2})));
  EXPECT_TRUE(at::equal(values[1], numbers({10, 20})));
}

TEST(SumValues, TakesAnyMemoryOrder) {
  const auto square = at::arange(16, at::kFloat).view({4, 4});
  const Tensors values = {square, square.t(), square.narrow(1, 1, 1).expand({4, 4})};
  EXPECT_TRUE(at::equal(sum_values(values), square + square.t() + values[2]));
  const Tensors turned = {square.t(), square};
  EXPECT_TRUE(at::equal(sum_values(turned), square + square.t()));
}

TEST(SumValues, TakesScalarsAndEmptyTensors) {
  EXPECT_EQ(sum_values(Tensors{at::scalar_tensor(1.5), at::scalar_tensor(2.5)}).item<float>(), 4);
  EXPECT_EQ(sum_values(Tensors{at::empty({0, 3}), at::empty({0, 3})}).sizes(), (std::vector<std::int64_t>{0, 3}));
}

TEST(SumValues, IsNotPartOfTheGraph) {
  const Tensors values = {numbers({1}).requires_grad_(), numbers({2})};
  EXPECT_FALSE(sum_values(values).requires_grad());
}

TEST(SumValues, NamesTheFirstThatDiffers) {
  EXPECT_THAT(
      [] {
        sum_values(Tensors{at::ones({2}), at::ones({2}), at::ones({3})});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "replica 2", "[2]", "[3]"));
  EXPECT_THAT(
      [] {
        sum_values(Tensors{at::ones({2}), at::ones({2}, at::kLong)});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "replica 1", "Float", "Long"));
  EXPECT_THAT([] { sum_values({}); }, ThrowsCode(ErrorCode::kInvalidArgument, "no value"));
}

TEST(ReduceValues, AMeanDividesByTheNumberOfValues) {
  const Tensors values = {numbers({1, 2}), numbers({2, 4}), numbers({6, 0})};
  EXPECT_TRUE(at::equal(reduce_values(ReduceOp::kSum, values), numbers({9, 6})));
  EXPECT_TRUE(at::equal(reduce_values(ReduceOp::kMean, values), numbers({3, 2})));
}

TEST(ReduceValues, AMeanOfIntegersHasDoublePrecision) {
  for (const auto dtype : {at::kLong, at::kInt, at::kShort, at::kByte}) {
    const auto mean = reduce_values(ReduceOp::kMean, Tensors{numbers({1, 2}, dtype), numbers({2, 2}, dtype)});
    EXPECT_EQ(mean.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::equal(mean, numbers({1.5, 2}, at::kDouble))) << dtype;
  }
  EXPECT_EQ(mean_of_sum(numbers({1}, at::kHalf), 2).scalar_type(), at::kHalf);
}

TEST(RequireEqualValues, NamesTheCall) {
  const Tensors values = {at::ones({2, 1}), at::ones({1, 2})};
  EXPECT_THAT([&] { require_equal_values(values, "all_reduce"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "all_reduce: replica 0 gave [2, 1]", "replica 1 gave [1, 2]"));
  EXPECT_FALSE(unequal_values_error(Tensors{values[0], values[0]}, "reduce").has_value());
  EXPECT_FALSE(unequal_values_error({}, "reduce").has_value());
}

}  // namespace
}  // namespace lockstep
