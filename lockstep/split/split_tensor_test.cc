#include "lockstep/split/split_tensor.h"

#include <c10/core/GradMode.h>

#include <sstream>

#include "lockstep/split/logical_parts.h"
#include "tests/support/split_testing.h"
#include "tests/support/testing.h"

namespace lockstep::split {
namespace {

using lockstep::testing::code_of;
using ::testing::ElementsAre;
using testing::expect_equal;
using testing::home_of;
using testing::parts_of;
using testing::random;

TEST(SplitTensor, LooksLikeTheTensorThatWasSplit) {
  const auto x = at::arange(24, at::kFloat).view({4, 6});
  const auto y = split_to(x, home_of(4), {2, 2});
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_EQ(y.device(), x.device());
  EXPECT_TRUE(at::equal(whole(y), x));
  EXPECT_EQ(y.sum().item<float>(), 276);
  EXPECT_EQ(y[1][2].item<float>(), 8);
  std::ostringstream ours, theirs;
  ours << y;
  theirs << x;
  EXPECT_EQ(ours.str(), theirs.str());
}

TEST(SplitTensor, HasATileOnEachDeviceRowByRow) {
  const auto y = split_to(at::arange(16).view({4, 4}), home_of(4), {2, 2});
  const auto& value = *find_value(y);
  EXPECT_THAT(value.devices, ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(at::equal(value.parts[1], at::tensor({2, 3, 6, 7}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(value.parts[2], at::tensor({8, 9, 12, 13}, at::kLong).view({2, 2})));
}

TEST(SplitTensor, PartsHaveMemoryOfTheirOwn) {
  const auto x = at::zeros({4, 2});
  const auto split = split_to(x, home_of(2), {2, 1});
  const auto copies = replicate_to(x, home_of(2));
  const auto elsewhere = assign_to(x, home_of(2), 1);
  split.add_(1);
  copies.add_(2);
  elsewhere.add_(3);
  EXPECT_EQ(x.sum().item<float>(), 0);
  EXPECT_EQ(whole(split).sum().item<float>(), 8);
  EXPECT_EQ(whole(copies).sum().item<float>(), 16);
  EXPECT_TRUE(at::equal(find_value(copies)->parts[0], find_value(copies)->parts[1]));
  EXPECT_EQ(whole(elsewhere).sum().item<float>(), 24);
}

TEST(SplitTensor, OnTheFirstDeviceIsTheTensorItself) {
  const auto x = at::ones({2});
  EXPECT_TRUE(assign_to(x, home_of(2), 0).is_same(x));
  EXPECT_EQ(find_value(split_to(x, home_of(1), {1})), nullptr);
}

TEST(SplitTensor, StaysWhereItWasAssigned) {
  const auto x = assign_to(at::ones({2}), home_of(3), 2);
  const auto y = at::relu(x * 3 + 1);
  ASSERT_NE(find_value(y), nullptr);
  EXPECT_THAT(find_value(y)->devices, ElementsAre(2));
  EXPECT_EQ(y.sum().item<float>(), 8);
}

TEST(SplitTensor, CopiesStayCopies) {
  const auto x = replicate_to(at::ones({2}), home_of(3));
  const auto y = x * 2 + at::ones({2});
  ASSERT_NE(find_value(y), nullptr);
  EXPECT_TRUE(find_value(y)->is_replicated);
  EXPECT_EQ(y.sum().item<float>(), 6);
}

TEST(SplitTensor, WrittenInPlaceGivesItself) {
  const auto x = split_to(at::ones({4}), home_of(2), {2});
  const auto y = x.mul_(2);
  EXPECT_TRUE(y.is_same(x));
  EXPECT_EQ(x.sum().item<float>(), 8);
  x.cumsum_(0);  // there is no rule for it
  EXPECT_TRUE(at::equal(whole(x), at::tensor({2.f, 4.f, 6.f, 8.f})));
  EXPECT_EQ(parts_of(x), 2);
}

TEST(SplitTensor, MayBeAddedToAnOrdinaryOneInPlace) {
  auto x = at::ones({4});
  x.add_(split_to(at::ones({4}), home_of(2), {2}));
  EXPECT_EQ(find_value(x), nullptr);
  EXPECT_EQ(x.sum().item<float>(), 8);
}

TEST(SplitTensor, IsTakenInListsAndInBackward) {
  auto leaf = at::ones({2, 2}, at::kDouble).requires_grad_();
  const auto x = split_to(leaf, home_of(2), {2, 1});
  const auto both = at::cat({x, x * 2}, 1);
  EXPECT_EQ(both.sum().item<double>(), 12);
  EXPECT_TRUE(x.requires_grad());
  EXPECT_FALSE(x.is_leaf());
  (x * 1).backward(at::full({2, 2}, 3.0, at::kDouble));
  EXPECT_EQ(leaf.grad().sum().item<double>(), 12);
}

TEST(SplitTensor, HasDataWithoutItsGradients) {
  const auto x = split_to(at::ones({4}).requires_grad_(), home_of(2), {2});
  EXPECT_TRUE(x.requires_grad());
  const auto data = x.data();
  EXPECT_FALSE(data.requires_grad());
  EXPECT_EQ(parts_of(data), 2);
  EXPECT_EQ(data.sum().item<float>(), 4);
  EXPECT_FALSE(x.detach().requires_grad());
}

TEST(SplitTensor, MayBeEmpty) {
  const auto x = split_to(at::ones({0, 4}), home_of(2), {2, 1});
  EXPECT_EQ((x + 1).sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(x.sum().item<float>(), 0);
}

TEST(SplitTensor, OfOtherCutsAreBroughtTogether) {
  const auto home = home_of(4);
  const auto x = random({4, 8});
  const auto sum = split_to(x, home, {4, 1}) + split_to(x, home, {1, 4}) + replicate_to(x, home) + assign_to(x, home, 3) + x;
  EXPECT_TRUE(at::allclose(whole(sum), 5 * x));
  EXPECT_EQ(parts_of(sum), 4);
}

TEST(SplitTensor, HasNoMemoryThatOneCouldReadByMistake) {
  const auto x = split_to(at::ones({4}), home_of(2), {2});
  EXPECT_THROW(x.data_ptr(), c10::Error);
}

TEST(SplitTensor, IsWrittenWhereOthersShareIt) {
  const auto x = split_to(at::zeros({4}), home_of(2), {2});
  const auto data = x.data();
  data.copy_(at::ones({4}));
  EXPECT_EQ(x.sum().item<float>(), 4);
  data.cumsum_(0);
  EXPECT_EQ(x.sum().item<float>(), 10);
  const auto there = assign_to(at::zeros({2, 2}), home_of(2), 1);
  there.copy_(at::ones({2, 2}));
  EXPECT_EQ(find_value(there)->parts[0].sum().item<float>(), 4);
}

TEST(SplitTensor, KeepsItsGraphWhenItIsWrittenToWithoutOne) {
  auto leaf = at::ones({4}, at::kDouble).requires_grad_();
  const auto x = split_to(leaf, home_of(2), {2}) * 2;
  {
    const c10::NoGradGuard no_grad;
    x.copy_(at::full({4}, 7.0, at::kDouble));
  }
  (x * 3).sum().backward();
  EXPECT_EQ(leaf.grad().sum().item<double>(), 24);
}

TEST(SplitTensor, WritesToItsViewsAreRefusedNotLost) {
  for (const auto& x : {split_to(at::ones({4, 2}), home_of(2), {2, 1}), assign_to(at::ones({4, 2}), home_of(2), 1)}) {
    EXPECT_EQ(x[0].sum().item<float>(), 2);
    EXPECT_EQ((x[0] * 2).sum().item<float>(), 4);
    EXPECT_EQ(code_of([&] { x[0].fill_(5); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(code_of([&] { x.narrow(0, 1, 2).t().add_(5); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(code_of([&] { x.unbind()[0].add_(5); }), ErrorCode::kUnimplemented);
    x.t().add_(1);
    EXPECT_EQ(x.sum().item<float>(), 16);
    EXPECT_EQ(code_of([&] { x.transpose_(0, 1); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{4, 2}));
    EXPECT_EQ(code_of([&] { at::_foreach_add_({x}, 1.); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(x.sum().item<float>(), 16);
  }
}

TEST(SplitTensor, RefusesGradientsThatWouldBeLost) {
  const auto x = split_to(at::ones({4}), home_of(2), {2});
  x.requires_grad_();
  EXPECT_EQ(code_of([&] { x.sum(); }), ErrorCode::kUnimplemented);
  const auto y = split_to(at::ones({4}).requires_grad_(), home_of(2), {2});
  EXPECT_TRUE(y.requires_grad());
  y.detach_();
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.sum().item<float>(), 4);
}

TEST(SplitTensor, CannotBecomeAnOrdinaryOne) {
  auto x = at::ones({4});
  EXPECT_THROW(x.set_data(split_to(x, home_of(2), {2})), c10::Error);
  EXPECT_EQ(x.sum().item<float>(), 4);
}

TEST(SplitTensor, OfTwoReplicasAreTakenWhole) {
  const auto sum = split_to(at::ones({4, 2}), home_of(2), {2, 1}) + split_to(at::ones({4, 2}), home_of(4), {4, 1});
  EXPECT_EQ(find_value(sum), nullptr);
  EXPECT_EQ(sum.sum().item<float>(), 16);
}

TEST(SplitTensor, StatisticsOfABatchNormMayBeSplit) {
  const auto mean = replicate_to(at::zeros({3}), home_of(2));
  const auto variance = split_to(at::ones({3}), home_of(3), {3});
  at::batch_norm(at::ones({4, 3}), {}, {}, mean, variance, true, 0.5, 1e-5, false);
  for (const auto& part : find_value(mean)->parts) EXPECT_EQ(part.sum().item<float>(), 1.5f);
  EXPECT_EQ(variance.sum().item<float>(), 1.5f);
}

}  // namespace
}  // namespace lockstep::split
