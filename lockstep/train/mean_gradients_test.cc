#include "tests/support/train_testing.h"

// GradientOptions::reduce = kMean: every replica's loss is its own mean.

namespace lockstep {
namespace {

using namespace testing;

struct Mixed : WithTable {
  Mixed() : late(register_parameter("late", torch::ones({8}, torch::kDouble))) {}
  // One value a row.
  torch::Tensor losses(const torch::Tensor& x, int step) {
    const auto all = dense->forward(x).square().sum(1) + looked_up(x).sum(1);
    return step < 3 ? all : all + (x * late).tanh().sum(1);
  }
  torch::Tensor late;
};

const auto make = [] { return std::make_shared<Mixed>(); };

TEST(MeanGradients, OfMeanLossesEqualTheSumOfAverageLosses) {
  const auto alone = train_alone(make, [](Mixed& net, int step) { return net.losses(batch(step, 8), step).mean(); });
  for (const int replicas : {1, 2, 3})
    for (const bool overlap : {true, false}) {
      const auto what = str(replicas, " replicas, overlap ", overlap);
      const auto mean = train_together(replicas, {.gradients = {.reduce = ReduceOp::kMean, .overlap = overlap}}, make,
                                       [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                         model->losses(part_of(batch(step, 8), context), step).mean().backward();
                                         optimizer.step();
                                       });
      const auto sum =
          train_together(replicas, {.gradients = {.overlap = overlap}}, make,
                         [](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                           compute_average_loss(model->losses(part_of(batch(step, 8), context), step), kRows).backward();
                           optimizer.step();
                         });
      expect_close(mean, alone, what + ", mean");
      expect_close(sum, alone, what + ", sum");
    }
}

// A replica that does not reach a parameter counts with zero, and is counted.
TEST(MeanGradients, CountEveryReplicaWhateverItReaches) {
  MirroredStrategy strategy(cpus(4));
  const auto scope = strategy.scope();
  auto model = mirrored<torch::nn::Linear>(torch::nn::LinearOptions(2, 1).bias(false));
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0, {.gradients = {.reduce = ReduceOp::kMean}});
  for (int step = 0; step < 3; ++step) {
    const auto before = model.at(0).weight.detach().clone();
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == 2) model->forward(torch::ones({1, 2})).sum().backward();
      optimizer.step();
    });
    for (std::size_t r = 0; r < 4; ++r) EXPECT_TRUE(torch::allclose(model.at(r).weight, before - 0.25)) << step;
  }
}

}  // namespace
}  // namespace lockstep
