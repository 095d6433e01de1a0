#include "tests/support/train_testing.h"

// Losses that contain gradients.

namespace lockstep {
namespace {

using namespace testing;

torch::Tensor gradient_of(const torch::Tensor& y, const torch::Tensor& x) {
  return torch::autograd::grad({y}, {x}, {}, c10::nullopt, /*create_graph=*/true)[0];
}

TEST(DoubleBackward, GoesThroughTheAverageLoss) {
  const auto x = torch::tensor({1.0, 2.0, 3.0}, torch::kDouble).requires_grad_();
  const auto average = [&] { return compute_average_loss(x.pow(3), 6); };
  const auto first = gradient_of(average(), x);
  EXPECT_TRUE(torch::allclose(first, 3 * x.square() / 6));
  ASSERT_TRUE(first.requires_grad());
  const auto second = gradient_of(first.sum(), x);
  EXPECT_TRUE(torch::allclose(second, x));
  EXPECT_TRUE(torch::allclose(gradient_of(second.sum(), x), torch::ones({3}, torch::kDouble)));
}

// The gradient with respect to what the average is multiplied with.
TEST(DoubleBackward, GoesThroughAScaledAverageLoss) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const auto x = torch::tensor({1.0, 2.0}, dtype).requires_grad_();
    const auto scale = torch::tensor(3.0, dtype).requires_grad_();
    const auto inner = gradient_of(compute_average_loss(x.square(), 4) * scale, x);  // scale * x / 2
    EXPECT_TRUE(torch::allclose(inner, torch::tensor({1.5, 3.0}, dtype)));
    const auto outer = torch::autograd::grad({compute_average_loss(inner.square(), 2)}, {scale, x});  // scale^2 x^2 / 8
    EXPECT_TRUE(torch::allclose(outer[0], torch::tensor(2 * 3.0 * (1 + 4) / 8, dtype)));
    EXPECT_TRUE(torch::allclose(outer[1], torch::tensor({9 * 2 / 8.0, 9 * 4 / 8.0}, dtype)));
  }
}

TEST(DoubleBackward, ThroughARegularisationLoss) {
  const auto x = torch::tensor({1.0, 2.0}, torch::kDouble).requires_grad_();
  const auto first = gradient_of(scale_regularization_loss(x.pow(3)), x);
  EXPECT_TRUE(torch::allclose(gradient_of(first.sum(), x), 6 * x));
}

const auto make_net = [] { return std::make_shared<SmallAndLarge>(); };

// The loss of every row and the square of its slope.
torch::Tensor penalised(SmallAndLarge& net, const torch::Tensor& rows) {
  const auto x = rows.clone().requires_grad_();
  const auto losses = net.forward(x).square().sum(1);
  return compute_average_loss(losses + gradient_of(losses.sum(), x).square().sum(1) * 0.1, kRows);
}

TEST(DoubleBackward, AGradientPenaltyTrainsAsInOneProcess) {
  const auto alone = train_alone(make_net, [](SmallAndLarge& net, int step) { return penalised(net, batch(step, 8)); });
  for (const int replicas : {2, 3})
    for (const bool overlap : {true, false}) {
      const auto together = train_together(replicas, {.gradients = {.overlap = overlap}}, make_net,
                                           [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                             penalised(*model, part_of(batch(step, 8), context)).backward();
                                             optimizer.step();
                                           });
      expect_close(together, alone, str(replicas, " replicas, overlap ", overlap));
    }
}

// The slope with respect to the parameters: their hooks must see only the last backward().
TEST(DoubleBackward, GradientsOfParametersInsideALossAreNotTakenForTheStepsOwn) {
  const auto loss = [](SmallAndLarge& net, const torch::Tensor& x) {
    const auto plain = loss_of(net, x);
    return plain + gradient_of((net.small(x).tanh()).sum(), net.small->weight).sum() * 0.01;
  };
  const auto alone = train_alone(make_net, [&](SmallAndLarge& net, int step) { return loss(net, batch(step, 8)); });
  const auto together =
      train_together(2, {}, make_net, [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        loss(*model, part_of(batch(step, 8), context)).backward();
        optimizer.step();
      });
  expect_close(together, alone, "inner gradients");
}

// LibTorch then leaves gradients that have a graph of their own.
TEST(DoubleBackward, BackwardThatKeepsAGraphTrainsAsAnyOther) {
  const auto alone = train_alone(make_net, [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)); });
  const auto together =
      train_together(2, {}, make_net, [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        loss_of(*model, part_of(batch(step, 8), context)).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        optimizer.step();
        for (auto& p : model->parameters()) EXPECT_FALSE(p.grad().requires_grad());
      });
  expect_close(together, alone, "create_graph");
}

}  // namespace
}  // namespace lockstep
