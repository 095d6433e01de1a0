#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// Where an optimizer may be used, and what it means there.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;
using Sgd = torch::optim::SGD;

auto linear() { return mirrored<torch::nn::Linear>(torch::nn::LinearOptions(2, 1)); }

TEST(OptimizerContext, StepInCrossReplicaContextIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = linear();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  EXPECT_THAT([&] { optimizer.step(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "run()"));
}

TEST(OptimizerContext, StepOutsideEveryScopeIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto [model, optimizer] = [&] {
    const auto scope = strategy.scope();
    auto made = linear();
    return std::pair(made, lockstep::optimizer<Sgd>(made, 0.1));
  }();
  auto handle = optimizer;
  EXPECT_THAT([&] { handle.step(); }, ThrowsCode(ErrorCode::kFailedPrecondition));
  EXPECT_THAT([&] { handle.synchronize(); }, ThrowsCode(ErrorCode::kFailedPrecondition));
  // The attempt has changed nothing.
  const auto before = model.at(0).weight.detach().clone();
  strategy.run([&] {
    model->forward(torch::ones({1, 2})).sum().backward();
    handle.step();
  });
  EXPECT_TRUE(torch::allclose(model.at(0).weight, before - 0.2));
  EXPECT_TRUE(torch::equal(model.at(0).weight, model.at(1).weight));
}

TEST(OptimizerContext, LearningRateSetOutsideEveryScopeReachesAllReplicas) {
  MirroredStrategy strategy(cpus(3));
  std::optional<Optimizer> optimizer;
  {
    const auto scope = strategy.scope();
    optimizer.emplace(lockstep::optimizer<Sgd>(linear(), 0.1));
  }
  optimizer->set_learning_rate(0.025);
  EXPECT_DOUBLE_EQ(optimizer->learning_rate(), 0.025);
  const auto rates = strategy.run([&] { return optimizer->learning_rate(); });
  EXPECT_EQ(rates.values(), (std::vector<double>{0.025, 0.025, 0.025}));
}

TEST(OptimizerContext, LearningRateSetInScopeReachesAllReplicas) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  auto optimizer = lockstep::optimizer<Sgd>(linear(), 0.1);
  optimizer.set_learning_rate(0.5);
  EXPECT_EQ(strategy.run([&] { return optimizer.learning_rate(); }).values(), (std::vector<double>{0.5, 0.5, 0.5}));
  strategy.run([&] { optimizer.set_learning_rate(0.25); });
  EXPECT_EQ(strategy.run([&] { return optimizer.learning_rate(); }).values(), (std::vector<double>{0.25, 0.25, 0.25}));
}

TEST(OptimizerContext, WithoutAStrategyItIsAPlainOptimizer) {
  auto model = linear();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.5);
  const auto before = model->weight.detach().clone();
  for (int step = 0; step < 2; ++step) {
    model->forward(torch::ones({1, 2})).sum().backward();
    optimizer.step();
  }
  EXPECT_TRUE(torch::allclose(model->weight, before - 1.0));
}

TEST(OptimizerContext, AnotherStrategysReplicaMayNotStep) {
  MirroredStrategy owner(cpus(2));
  MirroredStrategy other(cpus(2));
  std::optional<Optimizer> optimizer;
  {
    const auto scope = owner.scope();
    optimizer.emplace(lockstep::optimizer<Sgd>(linear(), 0.1));
  }
  EXPECT_THAT([&] { other.run([&] { optimizer->step(); }); }, ThrowsCode(ErrorCode::kFailedPrecondition, "mixing"));
}

TEST(OptimizerContext, ClipNormMustBePositive) {
  for (const double norm : {0.0, -1.0, std::nan("")})
    EXPECT_THAT([&] { lockstep::optimizer<Sgd>(linear(), 0.1, {.clip_global_norm = norm}); },
                ThrowsCode(ErrorCode::kInvalidArgument, "clip_global_norm"));
}

}  // namespace
}  // namespace lockstep
