#include "lockstep/train/sync_batch_norm.h"

#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::cpus;

struct Normed : torch::nn::Module {
  Normed()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(4))),
        head(register_module("head", torch::nn::Linear(4 * 16, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(norm(conv(x))).flatten(1)); }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear head;
};

struct Synced : torch::nn::Module {
  Synced() : norm(register_module("norm", SyncBatchNorm(3))), head(register_module("head", torch::nn::Linear(3, 1))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(norm(x)); }
  SyncBatchNorm norm;
  torch::nn::Linear head;
};

torch::Tensor images(int step) {
  return (torch::arange(7 * 36, torch::kDouble).reshape({7, 1, 6, 6}) * 0.31 + step).sin() * (step + 1);
}

// Five steps of SGD on batches of 7 rows. All parameters and buffers in the end.
std::vector<torch::Tensor> train(int replicas) {
  torch::manual_seed(5);
  std::optional<MirroredStrategy> strategy;
  std::optional<Scope> scope;
  if (replicas > 0) {
    strategy.emplace(cpus(replicas));
    scope.emplace(strategy->scope());
  }
  const auto module = mirrored<Normed>();
  if (replicas > 0) EXPECT_EQ(convert_sync_batch_norm(module), 1);
  Model model(module);
  model.compile({.optimizer = SGD(0.05), .loss = sparse_categorical_crossentropy({.from_logits = true})});
  for (int step = 0; step < 5; ++step) model.train_on_batch({images(step), torch::arange(7, torch::kLong) % 3});
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : model.weights().tensors) tensors.push_back(tensor);
  return tensors;
}

TEST(SyncBatchNorm, MakesReplicasTrainAsOneProcessDoes) {
  const auto alone = train(0);
  for (const int replicas : {2, 3, 9}) {  // 9: two have no rows
    const auto together = train(replicas);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(torch::allclose(together[i].to(torch::kDouble), alone[i].to(torch::kDouble), 1e-9, 1e-9))
          << replicas << " replicas, tensor " << i << "\n"
          << together[i] << "\n"
          << alone[i];
  }
}

TEST(SyncBatchNorm, IsAModuleOfItsOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto module = mirrored<Synced>();
  const auto x = (torch::arange(15, torch::kDouble).reshape({5, 3}) * 0.7).cos();
  Model model(module, [](Synced& net, const torch::Tensor& rows) { return net.norm(rows); });
  const auto outputs = strategy.run([&](ReplicaContext& context) {
    return module->norm(x.tensor_split(2)[static_cast<std::size_t>(context.replica_id_in_sync_group())]);
  });
  const auto expected = torch::batch_norm(x, module->norm->weight, module->norm->bias, {}, {}, true, 0.1, 1e-5, false);
  EXPECT_TRUE(torch::allclose(torch::cat(outputs.values()), expected));
  EXPECT_TRUE(torch::allclose(module->norm->running_var, 0.9 + 0.1 * x.var(0, /*unbiased=*/true)));
  EXPECT_EQ(testing::code_of([] { SyncBatchNorm(0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(testing::code_of([&] { module->norm(torch::ones({2, 4}, torch::kDouble)); }), ErrorCode::kInvalidArgument);
}

TEST(SyncBatchNorm, RefusesAModelWithoutBatchNorms) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto module = mirrored<torch::nn::Linear>(2, 2);
  EXPECT_EQ(testing::code_of([&] { convert_sync_batch_norm(module); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
