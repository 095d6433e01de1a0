#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"
#include "tests/support/train_testing.h"

// What a program writes to a mirrored model outside run() reaches all its copies.

namespace lockstep {
namespace {

using testing::cpus;
using testing::Sgd;

struct Net : torch::nn::Module {
  Net() : linear(register_module("linear", torch::nn::Linear(3, 2))), seen(register_buffer("seen", torch::zeros({2}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
  torch::Tensor seen;
};

// Whether all copies have this weight in run().
bool all_have(Strategy& strategy, const MirroredModule<Net>& model, const torch::Tensor& weight) {
  const auto equal = strategy.run([&] { return torch::equal(model->linear->weight, weight); });
  return equal[0] && equal[1];
}

TEST(OutsideWrites, AWrittenParameterReachesAllReplicas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  {
    const torch::NoGradGuard no_grad;
    model->linear->weight.fill_(7);
  }
  EXPECT_TRUE(all_have(strategy, model, torch::full({2, 3}, 7.0F)));
}

TEST(OutsideWrites, AlsoBetweenTwoRunsByAHandleFromBefore) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  const auto kept = model.local();
  for (int step = 0; step < 3; ++step) {
    strategy.run([&] {
      model->forward(torch::ones({1, 3})).sum().backward();
      optimizer.step();
    });
    const torch::NoGradGuard no_grad;
    kept->linear->weight.fill_(step);
    EXPECT_TRUE(all_have(strategy, model, torch::full({2, 3}, static_cast<float>(step))));
  }
}

TEST(OutsideWrites, LoadedWeightsReachAllReplicas) {
  const auto file = ::testing::TempDir() + "outside_writes.pt";
  const auto saved = std::make_shared<Net>();
  torch::save(saved, file);
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  auto local = model.local();
  torch::load(local, file);
  std::remove(file.c_str());
  EXPECT_TRUE(all_have(strategy, model, saved->linear->weight));
}

// Resuming: the optimizer may be there before the weights.
TEST(OutsideWrites, WeightsLoadedBesideAnOptimizerAreTrained) {
  const auto file = ::testing::TempDir() + "outside_writes_beside.pt";
  const auto saved = std::make_shared<Net>();
  torch::save(saved, file);
  const auto trained = [&](bool loads_first) {
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    auto model = mirrored<Net>();
    auto local = model.local();
    if (loads_first) torch::load(local, file);
    auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
    const auto step = [&] {
      strategy.run([&](ReplicaContext& context) {
        model->forward(torch::full({1, 3}, 1.0 + context.replica_id_in_sync_group())).square().sum().backward();
        optimizer.step();
      });
    };
    if (!loads_first) {
      step();
      torch::load(local, file);
    }
    for (int k = 0; k < 3; ++k) step();
    EXPECT_TRUE(torch::equal(model.at(0).linear->weight, model.at(1).linear->weight));
    return model->linear->weight.detach().clone();
  };
  EXPECT_TRUE(torch::equal(trained(false), trained(true)));
  EXPECT_FALSE(torch::equal(trained(true), saved->linear->weight));
  std::remove(file.c_str());
}

// Nothing is called between loading and backward() that could notice.
TEST(OutsideWrites, WeightsLoadedBetweenStepsWithoutAStrategyNeedAZeroGrad) {
  const auto file = ::testing::TempDir() + "outside_writes_alone.pt";
  torch::save(std::make_shared<Net>(), file);
  auto model = mirrored<Net>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  const auto load_and_step = [&](bool zeroes) {
    auto local = model.local();
    torch::load(local, file);
    if (zeroes) optimizer.zero_grad();
    model->forward(torch::ones({1, 3})).sum().backward();
    optimizer.step();
    return model->linear->weight.detach().clone();
  };
  const auto once = load_and_step(false);
  EXPECT_TRUE(torch::equal(once, load_and_step(true)));
  EXPECT_EQ(testing::code_of([&] { load_and_step(false); }), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(torch::equal(once, load_and_step(false))) << "what was added up is dropped";
  std::remove(file.c_str());
}

TEST(OutsideWrites, AnotherDtypeReachesAllReplicasAndAnOptimizerMadeBeforeSaysSo) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  auto before = lockstep::optimizer<Sgd>(model, 0.1);
  model->to(torch::kDouble);
  const auto train = [&](Optimizer& optimizer) {
    strategy.run([&] {
      model->forward(torch::ones({1, 3}, torch::kDouble)).sum().backward();
      optimizer.step();
    });
  };
  EXPECT_THAT([&] { train(before); }, testing::ThrowsCode(ErrorCode::kFailedPrecondition, "linear.weight", "dtype"));
  auto after = lockstep::optimizer<Sgd>(model, 0.1);
  train(after);
  EXPECT_TRUE(torch::equal(model.at(0).linear->weight, model.at(1).linear->weight));
  EXPECT_EQ(model.at(1).linear->weight.scalar_type(), torch::kDouble);
}

TEST(OutsideWrites, AWrittenBufferReachesAllReplicas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  model->seen.fill_(3);
  strategy.run([&] { model->seen += 1; });
  EXPECT_TRUE(torch::equal(model.at(1).seen, torch::full({2}, 4.0F)));
}

// A buffer that differs between the replicas, beside a parameter that the program changes outside run().
TEST(OutsideWrites, AWrittenParameterLeavesTheBuffersAlone) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  const auto kept = model.local();
  for (int round = 0; round < 2; ++round) {
    strategy.run([&](ReplicaContext& context) { model->seen += 2.0 * context.replica_id_in_sync_group(); });
    const torch::NoGradGuard no_grad;
    kept->linear->weight.clamp_(-0.1, 0.1);
  }
  EXPECT_TRUE(torch::equal(model->seen, torch::full({2}, 2.0F)));
}

TEST(OutsideWrites, LoadedBuffersAreNotAveragedAway) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  const auto kept = model.local();
  strategy.run([&] { model->seen += 10; });
  kept->seen.fill_(1);
  EXPECT_TRUE(torch::equal(model->seen, torch::ones({2})));
  EXPECT_TRUE(torch::equal(model.at(1).seen, torch::ones({2})));
}

TEST(OutsideWrites, ALookAtTheBuffersDoesNotTouchTheParameters) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    model->linear->weight.fill_(context.replica_id_in_sync_group());
    model->seen += 1;
  });
  model->eval();
  const auto values = strategy.run([&] { return model->linear->weight[0][0].item<double>(); });
  EXPECT_EQ(values[1], 1);
}

TEST(OutsideWrites, AWayToAnotherDtypeAndBackIsNoticed) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  model->to(torch::kHalf);
  model->to(torch::kFloat);
  strategy.run([] {});
  EXPECT_TRUE(torch::equal(model.at(0).linear->weight, model.at(1).linear->weight));
}

TEST(OutsideWrites, WhatARunWritesInOneReplicaStaysThere) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    model->linear->weight.fill_(context.replica_id_in_sync_group());
  });
  const auto values = strategy.run([&] { return model->linear->weight[0][0].item<double>(); });
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 1);
}

TEST(OutsideWrites, ThereIsNoSuchCopy) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  EXPECT_THAT([&] { model.at(9); }, testing::ThrowsCode(ErrorCode::kInvalidArgument, "copy 9"));
}

}  // namespace
}  // namespace lockstep
