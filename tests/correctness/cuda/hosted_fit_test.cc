#include <torch/torch.h>

#include <atomic>

#include "lockstep/lockstep.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// A worker with a GPU computes there, whatever the servers and the coordinator have: see Note [devices of hosted modules].

namespace lockstep {
namespace {

using testing::ServerCluster;

std::atomic<bool> g_was_elsewhere = false;  // than on the GPU

struct Words : torch::nn::Module {
  Words()
      : table(register_module("table", HostedEmbedding(HostedEmbeddingOptions{.rows = 40, .columns = 4, .seed = 3}))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        top(register_module("top", torch::nn::Linear(4, 1))) {}
  torch::Tensor forward(const torch::Tensor& ids) {
    if (!ids.is_cuda() || !top->weight.is_cuda() || !norm->running_mean.is_cuda()) g_was_elsewhere = true;
    return top(norm(table(ids).mean(1)));
  }
  HostedEmbedding table;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear top;
};

struct Result {
  CheckpointPart weights;
  Logs logs, evaluated;
};

Result train(const std::string& device) {
  const ServerCluster cluster(2, 1, {.devices = {device}});
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(2));
  torch::manual_seed(1);
  Model model(strategy.hosted<Words>());
  model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}), .loss = "mse", .metrics = {"mae"}});
  const auto batches = [] {
    const auto ids = (torch::arange(264, torch::kLong).reshape({88, 3}) * 7) % 40;
    return data::Dataset::from_tensor_slices({ids, ids.sum(1).to(torch::kFloat).sin()}).batch(8);
  };
  g_was_elsewhere = false;
  const auto history = model.fit(batches, {.epochs = 3, .steps_per_epoch = 11, .verbose = Verbose::kSilent});
  auto evaluated = model.evaluate(batches, {.steps = 11});
  EXPECT_EQ(g_was_elsewhere, device != "GPU:0");
  return {model.weights(), history.logs.back(), evaluated};
}

TEST(CudaHostedFit, AWorkerWithAGpuTrainsWhatTheCpuTrains) {
  const auto wanted = train("CPU:0"), found = train("GPU:0");
  for (const auto& [name, tensor] : wanted.weights.tensors) {
    EXPECT_TRUE(found.weights.find(name)->is_cpu()) << name;
    EXPECT_TRUE(torch::allclose(tensor, *found.weights.find(name), 1e-4, 1e-5)) << name;
  }
  for (const auto& [name, value] : wanted.logs) EXPECT_NEAR(found.logs.at(name), value, 1e-4) << name;
  for (const auto& [name, value] : wanted.evaluated) EXPECT_NEAR(found.evaluated.at(name), value, 1e-4) << name;
}

}  // namespace
}  // namespace lockstep
