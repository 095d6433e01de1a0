#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/train_testing.h"

// One optimizer owns a model's gradients, and gradients that it did not see come are taken or refused.

namespace lockstep {
namespace {

using testing::cpus;
using testing::Sgd;
using testing::ThrowsCode;

struct OneWeight : torch::nn::Module {
  OneWeight() : weight(register_parameter("weight", torch::zeros({2}))) {}
  torch::Tensor weight;
};

TEST(OneOwner, TheNewestOptimizerTakesTheGradientsOver) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto first = lockstep::optimizer<Sgd>(model, 1.0);
  auto second = lockstep::optimizer<Sgd>(model, 0.5);
  const auto step = [&](Optimizer& optimizer) {
    strategy.run([&] {
      model->weight.sum().backward();
      optimizer.step();
    });
  };
  EXPECT_THAT([&] { step(first); }, ThrowsCode(ErrorCode::kFailedPrecondition, "another optimizer"));
  second.zero_grad();
  step(second);
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, -1.0F)));
}

TEST(OneOwner, AnOptimizerCanBeReplacedInPlace) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  for (int round = 0; round < 3; ++round) {
    strategy.run([&] {
      model->weight.sum().backward();
      optimizer.step();
    });
    optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  }
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, -6.0F)));
}

TEST(OneOwner, AGradientWrittenInPlaceAfterAStepIsTheNextSteps) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  strategy.run([&] {
    model->weight.sum().backward();
    optimizer.step();
    torch::Tensor(model->weight.grad()).fill_(10);
    optimizer.step();
  });
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, -22.0F)));
}

TEST(OneOwner, AnotherDtypeInEveryReplicaNeedsANewOptimizer) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  EXPECT_THAT(
      [&] {
        strategy.run([&] {
          model->to(torch::kDouble);
          model->weight.sum().backward();
          optimizer.step();
        });
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "'weight'", "dtype"));
}

TEST(OneOwner, AGradientOfAnotherShapeIsRefusedByName) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  EXPECT_THAT(
      [&] {
        strategy.run([&] {
          model->weight.mutable_grad() = torch::ones({3});
          optimizer.step();
        });
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "'weight'", "[3]", "[2]"));
}

TEST(OneOwner, AReplicaThatFailsBeforeItsStepIsReported) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  testing::LogCapture log;
  const auto train = [&](ReplicaContext& context) {
    model->weight.sum().backward();
    optimizer.synchronize();
    if (context.replica_id_in_sync_group() == 1) throw std::runtime_error("stop");
    optimizer.step();
  };
  EXPECT_THROW(strategy.run(train), std::runtime_error);
  EXPECT_THAT(log.at(LogLevel::kError), ::testing::Contains(::testing::HasSubstr("some copies have made the step")));
}

TEST(OneOwner, WhatCannotWorkIsRefusedAtOnce) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto good = lockstep::optimizer<Sgd>(model, 1.0);
  EXPECT_THAT([&] { lockstep::optimizer<torch::optim::LBFGS>(model, 1.0); }, ThrowsCode(ErrorCode::kUnimplemented, "LBFGS"));
  EXPECT_THAT([&] { lockstep::optimizer<Sgd>(model, 1.0, {.gradients = {.bucket_bytes = 0}}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "bucket_bytes"));
  EXPECT_THAT([&] { strategy.run([&] { lockstep::optimizer<Sgd>(model, 1.0); }); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "outside run()"));
  strategy.run([&] {
    model->weight.sum().backward();
    good.step();
  });
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, -2.0F)));
}

TEST(OneOwner, GradientsThatAFailureInsideAMergeDroppedAreNotSkippedSilently) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWeight>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  const auto fail = [](Strategy& inner) {
    EXPECT_THROW(inner.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  };
  EXPECT_THAT(
      [&] {
        strategy.run([&](ReplicaContext& context) {
          model->weight.sum().backward();
          context.merge_call(fail);
          optimizer.step();
        });
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "dropped"));
  strategy.run([&] {
    model->weight.sum().backward();
    optimizer.step();
  });
  EXPECT_TRUE(torch::equal(model->weight, torch::full({2}, -2.0F)));
}

struct OneWave : torch::nn::Module {
  OneWave() : weight(register_parameter("weight", torch::zeros({1}, torch::kComplexDouble))) {}
  torch::Tensor weight;
};

TEST(OneOwner, ComplexGradientsAreClippedByTheirSize) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<OneWave>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0, {.clip_global_norm = 1.0});
  strategy.run([&] {
    model->weight.mutable_grad() = torch::complex(torch::full({1}, 1.5, torch::kDouble), torch::full({1}, 2.0, torch::kDouble));
    optimizer.step();
  });
  EXPECT_DOUBLE_EQ(optimizer.global_norm(), 5.0);
  EXPECT_NEAR(model->weight.abs().item<double>(), 1.0, 1e-12);
}

}  // namespace
}  // namespace lockstep
