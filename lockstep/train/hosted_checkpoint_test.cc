#include <torch/torch.h>

#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/train/hosted.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Hosted models that are saved, lost and found again; all tasks in one process.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ScratchFolder;
using testing::ServerCluster;
using testing::ThrowsCode;

struct Net : torch::nn::Module {
  explicit Net(std::int64_t rows)
      : table(register_module("table", HostedEmbedding(HostedEmbeddingOptions{.rows = rows, .columns = 4, .seed = 3}))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        top(register_module("top", torch::nn::Linear(4, 2))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return top(norm(table(ids).mean(1))); }
  HostedEmbedding table;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear top;
};

constexpr std::int64_t kRows = 30;

torch::Tensor ids(std::int64_t step) { return (torch::arange(24, torch::kLong).reshape({8, 3}) * 7 + step * 5) % kRows; }
torch::Tensor labels(std::int64_t step) { return (torch::arange(8, torch::kLong) + step) % 2; }

// A coordinator with a model; the servers may have its variables already.
struct Training {
  explicit Training(const ServerCluster& cluster, const Partitioner& partitioner = nullptr)
      : strategy(cluster.chief(), partitioner), coordinator(strategy), model(make(strategy)) {
    model.set_optimizer(Adam(0.01));
  }
  static HostedModel<Net> make(ParameterServerStrategy& strategy) {
    torch::manual_seed(1);
    return strategy.hosted<Net>(kRows);
  }

  void train(std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step < last; ++step)
      coordinator.schedule(
          [](Hosted<Net>& net, torch::Tensor x, torch::Tensor y) {
            torch::cross_entropy_loss(net->forward(x), y).backward();
            net.push();
            return torch::zeros({});
          },
          model, ids(step), labels(step));
    coordinator.join();
  }

  NamedTensors values() {
    NamedTensors all;
    const auto module = model.module();
    for (const auto& item : module->named_parameters()) all.emplace_back(item.key(), item.value().detach().clone());
    for (const auto& item : module->named_buffers()) all.emplace_back(item.key(), item.value().clone());
    all.emplace_back("table.weight", module->table->table()->value());
    return all;
  }

  Checkpoint checkpoint() { return Checkpoint(strategy).track("model", server_part(strategy, model)); }

  ParameterServerStrategy strategy;
  ClusterCoordinator coordinator;
  HostedModel<Net> model;
};

void expect_equal_bits(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
}

// 8 steps without a stop.
NamedTensors without_a_stop() {
  const ServerCluster cluster(2, 1);
  Training training(cluster, FixedShardsPartitioner(2));
  training.train(0, 8);
  return training.values();
}

TEST(HostedCheckpoint, StoppedAndRestoredOnOtherServersGivesTheSameBits) {
  const ScratchFolder folder;
  const auto wanted = without_a_stop();
  {
    const ServerCluster cluster(2, 1);
    Training training(cluster, FixedShardsPartitioner(2));
    CheckpointManager manager(training.checkpoint(), folder / "c");
    training.train(0, 3);
    manager.save(3);
    training.train(3, 4);  // lost
  }
  {
    const ServerCluster cluster(3, 1);
    Training training(cluster, FixedShardsPartitioner(5));
    CheckpointManager manager(training.checkpoint(), folder / "c");
    EXPECT_EQ(manager.restore_latest()->info.step, 3);
    training.train(3, 6);
    manager.save(6);
  }
  const ServerCluster cluster(1, 1);
  Training training(cluster);
  CheckpointManager manager(training.checkpoint(), folder / "c");
  EXPECT_EQ(manager.restore_latest()->info.step, 6);
  training.train(6, 8);
  expect_equal_bits(training.values(), wanted);
}

TEST(HostedCheckpoint, IsAModelOfOneProcessAndTheOtherWayRound) {
  const ScratchFolder folder;
  const ServerCluster cluster(2, 1);
  Training training(cluster, FixedShardsPartitioner(2));
  training.train(0, 2);
  training.checkpoint().write(folder / "hosted");
  const auto values = training.values();

  Net plain(kRows);
  EXPECT_TRUE(load_weights_into(plain, folder / "hosted").empty());
  const auto find = [&](const std::string& name) {
    return std::ranges::find(values, name, &std::pair<std::string, torch::Tensor>::first)->second;
  };
  for (const auto& item : plain.named_parameters()) EXPECT_TRUE(torch::equal(item.value(), find(item.key()))) << item.key();
  for (const auto& item : plain.named_buffers()) EXPECT_TRUE(torch::equal(item.value(), find(item.key()))) << item.key();

  {
    MirroredStrategy mirrored(cpus(2));
    const auto scope = mirrored.scope();
    auto model = lockstep::mirrored<Net>(kRows);
    Checkpoint one(mirrored);
    one.track("model", model).read(folder / "hosted");
    EXPECT_TRUE(torch::equal(model->top->weight, find("top.weight")));
    EXPECT_TRUE(torch::equal(model->parameters()[0], find("table.weight")));
    one.write(folder / "mirrored");
  }

  training.train(2, 4);
  training.checkpoint().read(folder / "mirrored");
  expect_equal_bits(training.values(), values);
}

// The servers keep everything: a coordinator that is started again goes on where the one before was.
TEST(Hosted, GoesOnUnderACoordinatorThatWasStartedAgain) {
  const auto wanted = without_a_stop();
  const ServerCluster cluster(2, 1);
  { Training(cluster, FixedShardsPartitioner(2)).train(0, 5); }
  Training again(cluster, FixedShardsPartitioner(2));
  again.train(5, 8);
  expect_equal_bits(again.values(), wanted);
}

TEST(Hosted, KeepsItsLearningRateUnderACoordinatorThatWasStartedAgain) {
  const ServerCluster cluster(1, 1);
  NamedTensors before;
  {
    Training first(cluster);
    first.train(0, 1);
    first.model.set_learning_rate(0);
    before = first.values();
  }
  Training again(cluster);
  again.train(1, 2);
  const auto after = again.values();
  for (std::size_t i = 0; i < before.size(); ++i)
    if (!before[i].first.starts_with("norm.running") && before[i].first != "norm.num_batches_tracked") {
      EXPECT_TRUE(torch::equal(before[i].second, after[i].second)) << before[i].first;
    }
}

}  // namespace
}  // namespace lockstep
