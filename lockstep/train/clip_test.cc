#include "tests/support/train_testing.h"

// Clipping by the norm over all gradients, after their sum over the replicas.

namespace lockstep {
namespace {

using namespace testing;

constexpr double kMostNorm = 0.25;
// LibTorch divides by the norm plus 1e-6.
constexpr double kTolerance = 1e-6;

struct Trained {
  Weights weights;
  std::vector<double> norms;
};

Trained train_with_libtorch(double most_norm) {
  torch::manual_seed(3);
  WithTable net(false);
  Sgd optimizer(net.parameters(), 0.01);
  std::vector<double> norms;
  for (int step = 0; step < kSteps; ++step) {
    for (auto& p : net.parameters()) p.mutable_grad().reset();
    net.loss(batch(step, 8)).backward();
    norms.push_back(torch::nn::utils::clip_grad_norm_(net.parameters(), most_norm));
    optimizer.step();
  }
  return {weights_of(net), norms};
}

Trained train_clipped(int replicas, bool is_sparse, std::optional<double> most_norm) {
  std::vector<double> norms;
  auto weights = train_together(
      replicas, {.clip_global_norm = most_norm}, [=] { return std::make_shared<WithTable>(is_sparse); },
      [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
        model->loss(part_of(batch(step, 8), context)).backward();
        optimizer.step();
        if (context.replica_id_in_sync_group() == 0) norms.push_back(optimizer.global_norm());
      });
  return {weights, norms};
}

TEST(Clip, DenseGradientsAreClippedAsLibTorchDoes) {
  const auto alone = train_with_libtorch(kMostNorm);
  for (const double norm : alone.norms) ASSERT_GT(norm, kMostNorm);
  for (const int replicas : {1, 2, 3}) {
    const auto together = train_clipped(replicas, false, kMostNorm);
    expect_close(together.weights, alone.weights, str(replicas, " replicas"), kTolerance);
    EXPECT_THAT(together.norms, ::testing::Pointwise(::testing::DoubleNear(kTolerance), alone.norms));
  }
}

// A row that came several times counts with the norm of its sum.
TEST(Clip, SparseGradientsAreClippedAsDenseOnes) {
  const auto alone = train_with_libtorch(kMostNorm);
  for (const int replicas : {1, 2, 3}) {
    const auto together = train_clipped(replicas, true, kMostNorm);
    expect_close(together.weights, alone.weights, str(replicas, " replicas"), kTolerance);
    EXPECT_THAT(together.norms, ::testing::Pointwise(::testing::DoubleNear(kTolerance), alone.norms));
  }
}

TEST(Clip, AboveTheNormNothingIsChanged) {
  const auto free = train_clipped(2, true, std::nullopt);
  const auto clipped = train_clipped(2, true, 1e9);
  for (std::size_t i = 0; i < free.weights.size(); ++i) EXPECT_TRUE(torch::equal(free.weights[i], clipped.weights[i])) << i;
  for (const double norm : clipped.norms) EXPECT_GT(norm, kMostNorm);
}

struct Pair : torch::nn::Module {
  Pair() : p(register_parameter("p", torch::zeros({4}))), q(register_parameter("q", torch::zeros({4}))) {}
  torch::Tensor p, q;
};

// LibTorch gives both parameters one gradient's memory.
TEST(Clip, TwoGradientsInOneMemoryAreScaledOnce) {
  for (const int replicas : {1, 2}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto model = mirrored<Pair>();
    auto optimizer = lockstep::optimizer<Sgd>(model, 1.0, {.clip_global_norm = 1.0});
    strategy.run([&] {
      ((model->p.view({2, 2}) + model->q.view({2, 2})) * torch::full({2, 2}, 3.0)).sum().backward();
      optimizer.step();
    });
    const auto expected = torch::full({4}, -1 / std::sqrt(8.0));
    EXPECT_TRUE(torch::allclose(model->p, expected)) << replicas << " replicas: " << model->p;
    EXPECT_TRUE(torch::allclose(model->q, expected)) << replicas << " replicas: " << model->q;
  }
}

TEST(Clip, TheNormIsOverAllReplicasNotOverEach) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Pair>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0, {.clip_global_norm = 1.0});
  strategy.run([&](ReplicaContext& context) {
    const double sign = context.replica_id_in_sync_group() == 0 ? 5 : -4.75;  // each is large, their sum is not
    (model->p * sign).sum().backward();
    optimizer.step();
  });
  EXPECT_DOUBLE_EQ(optimizer.global_norm(), 0.5);
  EXPECT_TRUE(torch::equal(model->p, torch::full({4}, -0.25)));
}

}  // namespace
}  // namespace lockstep
