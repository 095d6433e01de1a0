#include "lockstep/train/loss.h"

#include "tests/support/train_testing.h"

// Values, types and gradients of the average loss.

namespace lockstep {
namespace {

using namespace testing;

torch::Tensor numbers(c10::ScalarType dtype) { return torch::tensor({1, 2, 3, 4, 5, 6}).to(dtype); }

TEST(AverageLoss, OfEveryFloatingTypeKeepsTheType) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    const auto loss = compute_average_loss(numbers(dtype), 12);
    EXPECT_EQ(loss.scalar_type(), dtype);
    EXPECT_EQ(loss.dim(), 0);
    EXPECT_EQ(loss.item<double>(), 1.75) << dtype;
  }
}

TEST(AverageLoss, OfEveryIntegerTypeIsFloat64) {
  for (const auto dtype : {torch::kInt, torch::kLong, torch::kByte, torch::kBool}) {
    const auto loss = compute_average_loss(numbers(dtype), 12);
    EXPECT_EQ(loss.scalar_type(), torch::kDouble) << dtype;
    EXPECT_EQ(loss.item<double>(), dtype == torch::kBool ? 0.5 : 1.75) << dtype;
  }
  EXPECT_EQ(compute_average_loss(numbers(torch::kLong), torch::full({6}, 0.5), 12).item<double>(), 0.875);
}

TEST(AverageLoss, OfSeveralDimensionsCountsRowsAndSumsTheRest) {
  const auto losses = numbers(torch::kDouble).view({3, 2});
  EXPECT_DOUBLE_EQ(compute_average_loss(losses).item<double>(), 7);
  EXPECT_DOUBLE_EQ(compute_average_loss(losses.t()).item<double>(), 10.5);
  EXPECT_DOUBLE_EQ(compute_average_loss(losses.view({1, 2, 3})).item<double>(), 21);
}

TEST(AverageLoss, GradientsAreOneByTheGlobalBatchEverywhere) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16})
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{6}, {3, 2}, {2, 1, 3}, {6, 1}}) {
      const auto x = numbers(dtype).view(shape).requires_grad_();
      compute_average_loss(x, 8).backward();
      EXPECT_EQ(x.grad().scalar_type(), dtype);
      EXPECT_TRUE(torch::equal(x.grad(), torch::full(shape, 0.125, dtype))) << shape;
    }
}

TEST(AverageLoss, TheGradientThatComesInIsPassedOn) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto x = numbers(dtype).requires_grad_();
    (compute_average_loss(x.square(), 4) * 3 + compute_average_loss(x, 2)).backward();
    EXPECT_TRUE(torch::allclose(x.grad(), 1.5 * x + 0.5));
  }
}

// A view, and a slice with gaps: the gradient is the element's, not the memory's.
TEST(AverageLoss, GradientsReachTheElementsOfViews) {
  const auto x = torch::arange(12, torch::kDouble).view({3, 4}).requires_grad_();
  compute_average_loss(x.t().slice(0, 0, 4, 2), 2).backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::tensor({0.5, 0.0, 0.5, 0.0}, torch::kDouble).expand({3, 4})));
}

TEST(AverageLoss, WeightsOfRowsAndOfElementsHaveTheirGradients) {
  const auto losses = numbers(torch::kDouble).view({3, 2});
  const auto by_row = torch::tensor({1.0, 0.0, 2.0}).requires_grad_();
  const auto x = losses.clone().requires_grad_();
  const auto loss = compute_average_loss(x, by_row, 10);
  EXPECT_DOUBLE_EQ(loss.item<double>(), (1 + 2 + 2 * 5 + 2 * 6) / 10.0);
  loss.backward();
  EXPECT_TRUE(torch::allclose(x.grad(), torch::tensor({.1, .1, 0., 0., .2, .2}, torch::kDouble).view({3, 2})));
  EXPECT_TRUE(torch::allclose(by_row.grad(), torch::tensor({.3, .7, 1.1})));
  const auto by_element = torch::tensor({1., 0., 0., 1., 0., 2.}, torch::kDouble).view({3, 2});
  EXPECT_DOUBLE_EQ(compute_average_loss(losses, by_element, 10).item<double>(), 1.7);
  EXPECT_DOUBLE_EQ(compute_average_loss(losses, torch::tensor(2.0), 10).item<double>(), 4.2);
}

TEST(AverageLoss, WeightsThatDoNotFitAreRefused) {
  const auto losses = torch::ones({3, 2});
  for (const auto& weights : {torch::ones({2}), torch::ones({3, 3}), torch::ones({3, 2, 1}), torch::ones({4})})
    EXPECT_THAT([&] { compute_average_loss(losses, weights, 6); }, ThrowsCode(ErrorCode::kInvalidArgument, "weights"))
        << weights.sizes();
}

TEST(AverageLoss, OfNoRowsIsZeroWithGradientsOfNoRows) {
  for (const auto& global : {std::optional<std::int64_t>(10), std::optional<std::int64_t>(0), std::optional<std::int64_t>()}) {
    const auto x = torch::ones({0, 3}).requires_grad_();
    const auto loss = compute_average_loss(x, global);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
  }
}

TEST(AverageLoss, HasNoGradientWhereNoneIsWanted) {
  EXPECT_FALSE(compute_average_loss(torch::ones({3}), 3).requires_grad());
  const auto x = torch::ones({3}).requires_grad_();
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(compute_average_loss(x, 3).requires_grad());
}

TEST(AverageLoss, MayBeChangedInPlaceAndUsedTwice) {
  const auto x = numbers(torch::kDouble).requires_grad_();
  auto loss = compute_average_loss(x, 6);
  loss += 1;
  loss *= 2;
  EXPECT_DOUBLE_EQ(loss.item<double>(), 9);
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_TRUE(torch::allclose(x.grad(), torch::full({6}, 2 * 2 / 6.0, torch::kDouble)));
}

TEST(AverageLoss, ANegativeGlobalBatchIsRefused) {
  EXPECT_THAT([] { compute_average_loss(torch::ones({3}), -1); }, ThrowsCode(ErrorCode::kInvalidArgument, "-1"));
}

TEST(AverageLoss, AcrossReplicasTheGlobalBatchMustBeGiven) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  EXPECT_THAT([] { compute_average_loss(torch::ones({3})); }, ThrowsCode(ErrorCode::kFailedPrecondition, "run()"));
  EXPECT_DOUBLE_EQ(compute_average_loss(torch::ones({3}), 6).item<double>(), 0.5);
}

}  // namespace
}  // namespace lockstep
