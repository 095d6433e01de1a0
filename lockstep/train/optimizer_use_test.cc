#include "tests/support/train_testing.h"

// An optimizer used as LibTorch's own are used: zero_grad() wherever people put it, learning rates that change, several
// models, looks at the gradients.

namespace lockstep {
namespace {

using namespace testing;

const auto make_net = [] { return std::make_shared<SmallAndLarge>(); };

Weights train_plainly() {
  return train_alone(make_net, [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)); });
}

TEST(ZeroGrad, MayBeCalledAnywhereOutsideBackwardAndStep) {
  const auto alone = train_plainly();
  for (const int place : {0, 1, 2, 3})
    for (const bool is_local : {false, true}) {
      const auto together =
          train_together(2, {}, make_net, [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
            const auto zero = [&](int here) {
              if (here != place) return;
              if (is_local) optimizer.local().zero_grad();
              else optimizer.zero_grad();
            };
            zero(0);
            const auto loss = loss_of(*model, part_of(batch(step, 8), context));
            zero(1);
            loss.backward();
            optimizer.step();
            zero(2);
            zero(3);
            if (place == 3) model->zero_grad();
          });
      expect_close(together, alone, str("place ", place, is_local ? ", LibTorch's" : ", ours"));
    }
}

class ZeroGradBetween : public ::testing::TestWithParam<bool> {
 protected:
  MirroredStrategy strategy_{cpus(2)};
  Scope scope_ = strategy_.scope();
  MirroredModule<SmallAndLarge> model_ = mirrored<SmallAndLarge>();
  Optimizer optimizer_ = lockstep::optimizer<Sgd>(model_, 0.01, {.gradients = {.overlap = GetParam()}});

  void train() {
    strategy_.run([&](ReplicaContext& context) {
      loss_of(*model_, part_of(batch(1, 8), context)).backward();
      optimizer_.step();
    });
  }
  // What train() does to the weights when nothing is left from before.
  Weights trained_copy() {
    const auto net = std::make_shared<SmallAndLarge>();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(model_.at(0).parameters()[i]);
    {
      const torch::AutoGradMode grad(true);
      loss_of(*net, batch(1, 8)).backward();
    }
    Sgd(net->parameters(), 0.01).step();
    return weights_of(*net);
  }
};

TEST_P(ZeroGradBetween, InARunDropsWhatTheReplicaHasAccumulated) {
  train();
  const auto expected = trained_copy();
  strategy_.run([&](ReplicaContext& context) {
    {
      const auto no_sync = optimizer_.no_sync();
      loss_of(*model_, part_of(batch(7, 8), context)).backward();
    }
    optimizer_.zero_grad();
    loss_of(*model_, part_of(batch(1, 8), context)).backward();
    optimizer_.step();
  });
  expect_close(weights_of(model_.at(0)), expected, "inside run()");
}

TEST_P(ZeroGradBetween, OutsideRunDropsWhatAllReplicasHaveAccumulated) {
  train();
  const auto expected = trained_copy();
  strategy_.run([&](ReplicaContext& context) {
    const auto no_sync = optimizer_.no_sync();
    loss_of(*model_, part_of(batch(7, 8), context)).backward();
  });
  optimizer_.zero_grad();
  for (std::size_t r = 0; r < 2; ++r)
    for (const auto& p : model_.at(r).parameters()) EXPECT_FALSE(p.grad().defined());
  train();
  expect_close(weights_of(model_.at(0)), expected, "outside run()");
}

// Also when their sum has begun: no replica runs.
TEST_P(ZeroGradBetween, OutsideRunDropsABackwardThatWasNotStepped) {
  train();
  const auto expected = trained_copy();
  strategy_.run([&](ReplicaContext& context) { loss_of(*model_, part_of(batch(7, 8), context)).backward(); });
  optimizer_.zero_grad();
  train();
  expect_close(weights_of(model_.at(0)), expected, "outside run()");
  expect_equal_copies(model_, "outside run()");
}

// What LibTorch's own zero_grad leaves: zeros, or in newer versions nothing.
TEST_P(ZeroGradBetween, OfLibTorchsOptimizerDropsAccumulatedGradientsToo) {
  train();
  const auto expected = trained_copy();
  strategy_.run([&](ReplicaContext& context) {
    {
      const auto no_sync = optimizer_.no_sync();
      loss_of(*model_, part_of(batch(7, 8), context)).backward();
      optimizer_.local().zero_grad();
    }
    loss_of(*model_, part_of(batch(1, 8), context)).backward();
    optimizer_.step();
  });
  expect_close(weights_of(model_.at(0)), expected, "LibTorch's zero_grad");
}

// A gradient that the user takes away under no_sync counts as one that did not come.
TEST_P(ZeroGradBetween, AGradientTakenAwayIsNoGradient) {
  train();
  const auto before = weights_of(model_.at(0));
  strategy_.run([&](ReplicaContext& context) {
    {
      const auto no_sync = optimizer_.no_sync();
      loss_of(*model_, part_of(batch(7, 8), context)).backward();
    }
    for (auto& p : model_->parameters()) p.mutable_grad().reset();
    optimizer_.step();
  });
  expect_close(weights_of(model_.at(0)), before, "taken away", 0);
}

TEST_P(ZeroGradBetween, BackwardAndStepIsRefusedWhenTheSumHasBegun) {
  train();
  const auto before = weights_of(model_.at(0));
  const auto expected = trained_copy();
  const auto odd = [&] {
    strategy_.run([&](ReplicaContext& context) {
      loss_of(*model_, part_of(batch(7, 8), context)).backward();
      optimizer_.zero_grad();
      optimizer_.step();
    });
  };
  if (GetParam()) EXPECT_THAT(odd, ThrowsCode(ErrorCode::kFailedPrecondition, "zero_grad()"));
  else odd();
  expect_close(weights_of(model_.at(0)), before, "nothing was left to step with", 0);
  train();
  expect_close(weights_of(model_.at(0)), expected, "the next step");
}

INSTANTIATE_TEST_SUITE_P(Overlap, ZeroGradBetween, ::testing::Bool());

TEST(OptimizerUse, ALearningRateMayChangeInEveryStep) {
  torch::manual_seed(3);
  SmallAndLarge net;
  Sgd alone(net.parameters(), 0.01);
  for (int step = 0; step < kSteps; ++step) {
    for (auto& group : alone.param_groups()) group.options().set_lr(0.01 / (step + 1));
    for (auto& p : net.parameters()) p.mutable_grad().reset();
    loss_of(net, batch(step, 8)).backward();
    alone.step();
  }
  const auto together =
      train_together(2, {}, make_net, [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        optimizer.set_learning_rate(0.01 / (step + 1));
        loss_of(*model, part_of(batch(step, 8), context)).backward();
        optimizer.step();
        EXPECT_DOUBLE_EQ(optimizer.learning_rate(), 0.01 / (step + 1));
      });
  expect_close(together, weights_of(net), "changing rates");
}

TEST(OptimizerUse, GradientsMayBeChangedBetweenSynchronizeAndStep) {
  const auto alone = train_alone(make_net, [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)) * 0.5; });
  const auto together =
      train_together(3, {}, make_net, [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        loss_of(*model, part_of(batch(step, 8), context)).backward();
        optimizer.synchronize();
        optimizer.synchronize();  // once a step; a second call does nothing
        for (auto& p : model->parameters()) p.mutable_grad() *= 0.5;
        optimizer.step();
      });
  expect_close(together, alone, "halved gradients");
}

TEST(OptimizerUse, AStepWithoutABackwardChangesNothing) {
  const auto alone = train_plainly();
  const auto together =
      train_together(2, {}, make_net, [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        optimizer.step();
        loss_of(*model, part_of(batch(step, 8), context)).backward();
        optimizer.step();
        optimizer.step();
      });
  expect_close(together, alone, "steps without gradients");
}

}  // namespace
}  // namespace lockstep
