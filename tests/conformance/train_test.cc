#include "tests/conformance/testing.h"

// Models and optimizers under a strategy.

namespace lockstep::testing {
namespace {

// Two numbers that start at zero.
struct Numbers : torch::nn::Module {
  Numbers() : weights(register_parameter("weights", torch::zeros({2}))) {}
  torch::Tensor weights;
};

// y = w x + b, all ones.
struct Ones : torch::nn::Module {
  explicit Ones(std::int64_t outputs) : layer(register_module("layer", torch::nn::Linear(1, outputs))) {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(1);
    layer->bias.fill_(1);
  }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer;
};

TEST(Training, MinimisesAndKeepsReplicasEqual) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Ones>(1);
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.005);
  double last_error = 1e9;
  for (int step = 0; step < 10; ++step) {
    const auto losses = strategy.run([&] {
      const auto y = model->forward(torch::full({1, 1}, 10.0));
      const auto loss = compute_average_loss((y - 1).abs().flatten());
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    const double error = strategy.reduce("sum", losses).item<double>();
    EXPECT_LE(error, last_error);
    last_error = error;
    EXPECT_TRUE(torch::equal(model.at(0).layer->weight, model.at(1).layer->weight));
    EXPECT_TRUE(torch::equal(model.at(0).layer->bias, model.at(1).layer->bias));
  }
  EXPECT_LT(last_error, 6);
}

TEST(Training, SumsGradientsOfTheReplicasOwnInputs) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Ones>(5);
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.01);
  const auto target = torch::arange(5, torch::kFloat);
  strategy.run(
      [&](at::Tensor x) {
        (model->forward(x.view({1, 1})) - target).square().sum().backward();
        optimizer.step();
      },
      scalars({-.5, .5}));
  for (std::size_t replica = 0; replica < 2; ++replica) {
    const auto bias = floats(model.at(replica).layer->bias);
    for (int k = 0; k < 5; ++k) EXPECT_NEAR(bias[static_cast<std::size_t>(k)], 1 - .02 * (1.5 - k) - .02 * (.5 - k), 1e-6);
  }
}

// The weights of all replicas after one step of SGD(0.1) with the gradients `factors`.
Floats weights_after_step(Strategy& strategy, const PerReplica<at::Tensor>& factors, bool is_aggregated) {
  const auto scope = strategy.scope();
  auto model = mirrored<Numbers>();
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.1);
  strategy.run(
      [&](at::Tensor factor) {
        (model->weights * factor).sum().backward();
        if (is_aggregated) optimizer.step();
        else optimizer.local().step();
      },
      factors);
  Floats all;
  for (std::size_t replica = 0; replica < model.size(); ++replica)
    for (const double weight : floats(model.at(replica).weights)) all.push_back(weight);
  return all;
}

const auto kNear = [](double value) { return ::testing::DoubleNear(value, 1e-6); };

TEST(Training, GradientsAreSummedUnlessTheLocalOptimizerSteps) {
  MirroredStrategy strategy(cpus(2));
  const auto factors = scalars({1, 2});
  EXPECT_THAT(weights_after_step(strategy, factors, true), ElementsAre(kNear(-.3), kNear(-.3), kNear(-.3), kNear(-.3)));
  EXPECT_THAT(weights_after_step(strategy, factors, false), ElementsAre(kNear(-.1), kNear(-.1), kNear(-.2), kNear(-.2)));
}

TEST(Training, OnOneDeviceThereIsNothingToSum) {
  OneDeviceStrategy strategy("CPU:0");
  EXPECT_THAT(weights_after_step(strategy, scalars({1}), true), ElementsAre(kNear(-.1), kNear(-.1)));
  EXPECT_THAT(weights_after_step(strategy, scalars({1}), false), ElementsAre(kNear(-.1), kNear(-.1)));
}

struct Normalised : torch::nn::Module {
  Normalised() : norm(register_module("norm", torch::nn::BatchNorm2d(1))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(x); }
  torch::nn::BatchNorm2d norm;
};

TEST(Training, BatchNormalisationLivesWithPartsWithoutRows) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Normalised>();
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.01);
  const auto rows = torch::arange(44, torch::kFloat).view({11, 1, 2, 2});
  const auto dataset = data::Dataset::from_tensor_slices(rows).batch(10).repeat();
  auto iterator = strategy.experimental_distribute_dataset(dataset).make_iterator();
  const auto before = floats(model->norm->running_mean);
  bool has_empty_part = false;
  for (int step = 0; step < 100; ++step) {
    const auto batch = iterator.get_next();
    has_empty_part = has_empty_part || batch[1][0].size(0) == 0;
    strategy.run(
        [&](at::Tensor x) {
          compute_average_loss(model->forward(x).square().flatten(1).sum(1), 10).backward();
          optimizer.step();
        },
        batch);
  }
  EXPECT_TRUE(has_empty_part);
  EXPECT_NE(floats(model->norm->running_mean), before);
  EXPECT_TRUE(at::isfinite(model->norm->running_mean).item<bool>());
  EXPECT_TRUE(at::isfinite(model->norm->running_var).item<bool>());
  EXPECT_TRUE(at::isfinite(model->norm->weight).item<bool>());
  EXPECT_TRUE(at::equal(model.at(0).norm->weight, model.at(1).norm->weight));
}

struct One : torch::nn::Module {
  One() : weight(register_parameter("weight", torch::ones({}))) {}
  torch::Tensor weight;
};

TEST(Training, ARegulariserCountsOnceWhateverTheNumberOfReplicas) {
  for (const int replicas : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto model = mirrored<One>();
    auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 1.0);
    strategy.run([&] {
      scale_regularization_loss(model->weight.square()).backward();
      optimizer.step();
    });
    for (std::size_t replica = 0; replica < model.size(); ++replica)
      EXPECT_NEAR(model.at(replica).weight.item<double>(), -1, 1e-6) << replicas << " replicas";
  }
}

}  // namespace
}  // namespace lockstep::testing
