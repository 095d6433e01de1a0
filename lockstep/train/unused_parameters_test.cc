#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/train_testing.h"

// Parameters that a loss does not reach: never, in one replica only, in some steps only.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LogCapture;
using testing::Sgd;
using testing::weights_of;

// A trunk and two heads, of which a step uses what it wants; the tables' gradients may be sparse.
struct TwoHeads : torch::nn::Module {
  explicit TwoHeads(bool is_sparse = false)
      : trunk(register_module("trunk", torch::nn::Linear(3, 4))),
        left(register_module("left", torch::nn::Linear(4, 2))),
        right(register_module("right", torch::nn::Linear(4, 2))),
        table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(is_sparse)))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x, bool goes_left) { return (goes_left ? left : right)(torch::tanh(trunk(x))); }
  torch::nn::Linear trunk, left, right;
  torch::nn::Embedding table;
};

torch::Tensor input(int step, int rows) {
  return torch::arange(step, step + 3 * rows, torch::kDouble).reshape({rows, 3}).sin();
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-10, 1e-12)) << what << ", parameter " << i;
}

// Even steps go left and look at the table, odd ones go right and do not.
torch::Tensor loss_of(TwoHeads& net, const torch::Tensor& x, int step) {
  auto loss = net.forward(x, step % 2 == 0).square().sum();
  if (step % 2 == 0) loss = loss + net.table(torch::tensor({1, 3, 1})).sum() * x.size(0);
  return loss;
}

std::vector<torch::Tensor> train_alone(bool is_sparse, int steps) {
  torch::manual_seed(3);
  TwoHeads net(is_sparse);
  Sgd optimizer(net.parameters(), 0.01);
  for (int step = 0; step < steps; ++step) {
    for (auto& p : net.parameters()) p.mutable_grad().reset();
    loss_of(net, input(step, 6), step).backward();
    optimizer.step();
  }
  return weights_of(net);
}

// A gradient of an earlier step must not be used again.
TEST(UnusedParameters, HeadsThatTakeTurnsTrainAsInOneProcess) {
  for (const bool is_sparse : {false, true}) {
    const auto alone = train_alone(is_sparse, 6);
    for (const int replicas : {1, 2, 3}) {
      torch::manual_seed(3);
      MirroredStrategy strategy(cpus(replicas));
      const auto scope = strategy.scope();
      auto model = mirrored<TwoHeads>(is_sparse);
      auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
      for (int step = 0; step < 6; ++step)
        strategy.run([&](ReplicaContext& context) {
          const auto x = input(step, 6).chunk(replicas)[static_cast<std::size_t>(context.replica_id_in_sync_group())];
          loss_of(*model, x, step).backward();
          optimizer.step();
        });
      for (int r = 0; r < replicas; ++r)
        expect_close(weights_of(model.at(static_cast<std::size_t>(r))), alone,
                     str(replicas, " replicas, ", is_sparse ? "sparse" : "dense", ", copy ", r));
    }
  }
}

TEST(UnusedParameters, AreNamedOnceAndNotChanged) {
  const LogCapture log;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<TwoHeads>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  const auto right = model.at(1).right->weight.detach().clone();
  for (int step = 0; step < 3; ++step)
    strategy.run([&] {
      model->forward(input(step, 2), true).sum().backward();
      optimizer.step();
    });
  EXPECT_TRUE(torch::equal(model.at(0).right->weight, right));
  EXPECT_TRUE(torch::equal(model.at(1).right->weight, right));
  EXPECT_THAT(optimizer.unused_parameters(), ElementsAre("right.weight", "right.bias", "table.weight"));
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("right.weight, right.bias, table.weight")));
}

TEST(UnusedParameters, CountAsZeroInTheReplicasThatDoNotReachThem) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  auto model = mirrored<TwoHeads>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
  for (int step = 0; step < 3; ++step) {
    const auto before = model.at(0).right->bias.detach().clone();
    strategy.run([&](ReplicaContext& context) {
      model->forward(input(step, 2), context.replica_id_in_sync_group() != 1).sum().backward();
      optimizer.step();
    });
    for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(torch::allclose(model.at(r).right->bias, before - 2.0)) << step;
  }
  EXPECT_THAT(optimizer.unused_parameters(), ElementsAre("table.weight"));
}

TEST(UnusedParameters, AGradientThatComesLateIsUsedFromThenOn) {
  for (const bool is_sparse : {false, true}) {
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    auto model = mirrored<TwoHeads>(is_sparse);
    auto optimizer = lockstep::optimizer<Sgd>(model, 1.0);
    for (int step = 0; step < 6; ++step) {
      const auto bias = model.at(0).right->bias.detach().clone();
      const auto row = model.at(0).table->weight.detach()[1].clone();
      strategy.run([&] {
        auto loss = model->forward(input(step, 1), true).sum();
        if (step >= 3) loss = loss + model->forward(input(step, 1), false).sum() + model->table(torch::tensor({1})).sum();
        loss.backward();
        optimizer.step();
      });
      const double moved = step >= 3 ? 2.0 : 0.0;
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_TRUE(torch::allclose(model.at(r).right->bias, bias - moved)) << "step " << step << ", replica " << r;
        EXPECT_TRUE(torch::allclose(model.at(r).table->weight[1], row - moved)) << "step " << step << ", replica " << r;
      }
    }
    EXPECT_THAT(optimizer.unused_parameters(), IsEmpty());
  }
}

TEST(UnusedParameters, ASparseOneThatWasReachedBeforeIsNotNamed) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<TwoHeads>(true);
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  for (int step = 0; step < 2; ++step)
    strategy.run([&] {
      loss_of(*model, input(step, 2), step).backward();
      optimizer.step();
    });
  EXPECT_THAT(optimizer.unused_parameters(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
