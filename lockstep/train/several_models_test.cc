#include "tests/support/train_testing.h"

// Several models, each with an optimizer of its own, in one run; and what becomes of a model after training.

namespace lockstep {
namespace {

using namespace testing;

struct Generator : torch::nn::Module {
  Generator() : layer(register_module("layer", torch::nn::Linear(8, 8))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(layer(x)); }
  torch::nn::Linear layer;
};

// The loop of a generative adversarial network. The generator's loss also reaches the discriminator, whose gradients of
// it are dropped.
template <typename G, typename D>
torch::Tensor generator_loss(G& generator, D& discriminator, const torch::Tensor& x) {
  return loss_of(discriminator, generator.forward(x));
}
template <typename G, typename D>
torch::Tensor discriminator_loss(G& generator, D& discriminator, const torch::Tensor& x) {
  return loss_of(discriminator, x) - loss_of(discriminator, generator.forward(x).detach()) * 0.1;
}

struct Adversaries {
  Weights generator, discriminator;
};

Adversaries train_adversaries_alone() {
  torch::manual_seed(3);
  Generator generator;
  SmallAndLarge discriminator;
  Sgd of_generator(generator.parameters(), 0.01);
  Sgd of_discriminator(discriminator.parameters(), 0.01);
  for (int step = 0; step < kSteps; ++step) {
    const auto x = batch(step, 8);
    of_discriminator.zero_grad();
    discriminator_loss(generator, discriminator, x).backward();
    of_discriminator.step();
    of_generator.zero_grad();
    generator_loss(generator, discriminator, x).backward();
    of_generator.step();
  }
  return {weights_of(generator), weights_of(discriminator)};
}

TEST(SeveralModels, AdversariesTrainAsInOneProcess) {
  const auto alone = train_adversaries_alone();
  for (const int replicas : {1, 2, 3}) {
    torch::manual_seed(3);
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto generator = mirrored<Generator>();
    auto discriminator = mirrored<SmallAndLarge>();
    auto of_generator = lockstep::optimizer<Sgd>(generator, 0.01);
    auto of_discriminator = lockstep::optimizer<Sgd>(discriminator, 0.01);
    for (int step = 0; step < kSteps; ++step)
      strategy.run([&](ReplicaContext& context) {
        const auto x = part_of(batch(step, 8), context);
        of_discriminator.zero_grad();
        discriminator_loss(*generator, *discriminator, x).backward();
        of_discriminator.step();
        const auto no_sync = of_discriminator.no_sync();
        generator_loss(*generator, *discriminator, x).backward();
        of_generator.step();
      });
    const auto what = str(replicas, " replicas");
    expect_close(weights_of(generator.at(0)), alone.generator, what);
    expect_close(weights_of(discriminator.at(0)), alone.discriminator, what);
    expect_equal_copies(generator, what);
    expect_equal_copies(discriminator, what);
  }
}

// One loss through two models; their optimizers step in any order that all replicas share.
TEST(SeveralModels, OneLossMayReachSeveralModels) {
  const auto train = [](int replicas, bool is_generator_first) {
    torch::manual_seed(3);
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto first = mirrored<Generator>();
    auto second = mirrored<SmallAndLarge>();
    auto of_first = lockstep::optimizer<Sgd>(first, 0.01);
    auto of_second = lockstep::optimizer<torch::optim::Adam>(second, 0.001);
    for (int step = 0; step < kSteps; ++step)
      strategy.run([&](ReplicaContext& context) {
        loss_of(*second, first->forward(part_of(batch(step, 8), context))).backward();
        if (is_generator_first) of_first.step();
        of_second.step();
        if (!is_generator_first) of_first.step();
      });
    expect_equal_copies(first, "first");
    expect_equal_copies(second, "second");
    auto weights = weights_of(first.at(0));
    for (const auto& weight : weights_of(second.at(0))) weights.push_back(weight);
    return weights;
  };
  const auto alone = train(1, true);
  for (const int replicas : {2, 3})
    for (const bool is_generator_first : {true, false})
      expect_close(train(replicas, is_generator_first), alone, str(replicas, " replicas"), 1e-8);
}

struct Regularised : torch::nn::Module {
  Regularised()
      : layer(register_module("layer", torch::nn::Linear(8, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        dropout(register_module("dropout", torch::nn::Dropout(0.5))) {}
  torch::Tensor forward(const torch::Tensor& x) { return dropout(norm(layer(x))); }
  torch::nn::Linear layer;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
};

TEST(SeveralModels, AfterTrainingEvalMakesAllCopiesOneFunction) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  auto model = mirrored<Regularised>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
  const auto train = [&](int step) {
    strategy.run([&](ReplicaContext& context) {
      model->forward(part_of(batch(step, 8).to(torch::kFloat), context)).square().sum().backward();
      optimizer.step();
    });
  };
  for (int step = 0; step < 3; ++step) train(step);
  model.eval();
  const auto x = batch(9, 8).to(torch::kFloat);
  const auto alone = model->forward(x);
  const auto statistics = model->norm->running_mean.clone();
  const auto replicas = strategy.run([&] { return model->forward(x).detach(); });
  for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(torch::equal(replicas[r], alone)) << r;
  for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(torch::equal(model.at(r).norm->running_mean, statistics)) << r;

  model.train();
  train(4);
  EXPECT_FALSE(torch::equal(model->norm->running_mean, statistics));
  expect_equal_copies(model, "trained again");
}

}  // namespace
}  // namespace lockstep
