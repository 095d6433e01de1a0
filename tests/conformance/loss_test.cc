#include "tests/conformance/testing.h"

// compute_average_loss and scale_regularization_loss.

namespace lockstep::testing {
namespace {

// The sum over the replicas of what each of them computes.
template <typename F>
double sum_over_replicas(int replicas, F compute) {
  MirroredStrategy strategy(cpus(replicas));
  return strategy.reduce("sum", strategy.run([&] { return compute(); })).template item<double>();
}

TEST(AverageLoss, DividesByTheGlobalBatch) {
  EXPECT_NEAR(compute_average_loss(vec({1, 2, 3, 4, 5}), 10).item<double>(), 1.5, 1e-6);
}

TEST(AverageLoss, WithoutAGlobalBatchAssumesEqualReplicas) {
  const auto average = [] { return compute_average_loss(vec({2.5, 6.2, 5})); };
  EXPECT_NEAR(average().item<double>(), 4.566667, 1e-5);
  EXPECT_NEAR(sum_over_replicas(2, average), 4.566667, 1e-5);
}

TEST(AverageLoss, WeighsExamples) {
  const auto average = [] { return compute_average_loss(vec({2, 4, 6}), vec({.3, .5, .2})); };
  EXPECT_NEAR(average().item<double>(), 1.266667, 1e-5);
  EXPECT_NEAR(sum_over_replicas(2, average), 1.266667, 1e-5);
}

TEST(AverageLoss, WeighsTimeSteps) {
  const auto average = [] { return compute_average_loss(vec({2, .5, 4, 1}).view({2, 2}), vec({.3, .7, .2, .8}).view({2, 2})); };
  EXPECT_NEAR(average().item<double>(), 1.275, 1e-5);
  EXPECT_NEAR(sum_over_replicas(2, average), 1.275, 1e-5);
}

TEST(AverageLoss, KeepsItsDtype) {
  EXPECT_EQ(compute_average_loss(at::ones({3}, at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_EQ(compute_average_loss(at::ones({3}, at::kDouble), at::ones({3}, at::kFloat)).scalar_type(), at::kDouble);
  EXPECT_EQ(compute_average_loss(at::ones({3}, at::kFloat)).scalar_type(), at::kFloat);
}

TEST(AverageLoss, RefusesAScalar) {
  EXPECT_EQ(code_of([] { compute_average_loss(scalar(1)); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { compute_average_loss(scalar(1), scalar(1)); }), ErrorCode::kInvalidArgument);
}

TEST(RegularizationLoss, IsDividedByTheReplicas) {
  const auto scaled = [] { return scale_regularization_loss(vec({2.5, 6.2, 5})); };
  EXPECT_NEAR(scaled().item<double>(), 13.7, 1e-5);
  EXPECT_NEAR(sum_over_replicas(2, scaled), 13.7, 1e-5);
}

TEST(RegularizationLoss, IsRefusedAcrossReplicas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  EXPECT_EQ(code_of([] { scale_regularization_loss(vec({2.5, 6.2, 5})); }), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::testing
