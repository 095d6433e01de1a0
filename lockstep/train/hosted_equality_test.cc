#include <torch/torch.h>

#include "lockstep/train/hosted.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// With one worker the servers see the gradients of one process, in its order: the same bits, whatever the mode.

namespace lockstep {
namespace {

using testing::ServerCluster;

constexpr std::int64_t kRows = 8;  // every one is used in every step

// Dense layers and a table whose rows are used twice in a step.
struct Clicks : torch::nn::Module {
  Clicks()
      : table(register_module("table", HostedEmbedding(kRows, 3))),
        first(register_module("first", torch::nn::Linear(6, 5))),
        second(register_module("second", torch::nn::Linear(5, 1))) {}
  torch::Tensor forward(const torch::Tensor& users, const torch::Tensor& items) {
    const auto both = torch::cat({table(users).mean(1), table(items).mean(1)}, 1);
    return second(torch::tanh(first(both)));
  }
  HostedEmbedding table;
  torch::nn::Linear first;
  torch::nn::Linear second;
};

torch::Tensor users(std::int64_t step) { return (torch::arange(24, torch::kLong).reshape({8, 3}) * 7 + step * 5) % kRows; }
torch::Tensor items(std::int64_t step) { return (torch::arange(16, torch::kLong).reshape({8, 2}) * 11 + step * 3) % kRows; }
torch::Tensor loss_of(Clicks& net, std::int64_t step) {
  return (net.forward(users(step), items(step)) - (torch::arange(8, torch::kFloat).unsqueeze(1) * 0.3).sin()).square().mean();
}

struct Case {
  std::string name;
  OptimizerSpec spec;
  bool takes_sparse;  // in one process; others get the same gradient as a dense one, which is the same when all rows are used
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"sgd", SGD(0.1), true},
      {"momentum", SGD({.learning_rate = 0.1, .momentum = 0.9}), false},
      {"adagrad", Adagrad(0.1), true},
      {"adam", Adam(0.01), false},
      {"ftrl", Ftrl({.learning_rate = 0.1, .l1_regularization_strength = 0.01, .l2_regularization_strength = 0.02}), false},
  };
  return all;
}

void copy_values(Clicks& to, Clicks& from) {
  const torch::NoGradGuard no_grad;
  to.table->parameters()[0].copy_(from.table->table()->value());
  const auto there = from.named_parameters();
  for (auto& item : to.named_parameters())
    if (const auto* found = there.find(item.key())) item.value().copy_(*found);
}

// One process.
class Alone {
 public:
  Alone(const Case& c, Clicks& begin) : takes_sparse_(c.takes_sparse), optimizer_(nullptr) {
    copy_values(net, begin);
    optimizer_ = c.spec.make(net.parameters());
  }
  torch::Tensor step(std::int64_t number) {
    for (auto& parameter : net.parameters()) parameter.mutable_grad() = torch::Tensor();
    const auto loss = loss_of(net, number);
    loss.backward();
    auto& gradient = net.table->parameters()[0].mutable_grad();
    if (!takes_sparse_)  // what belongs to one row added up in its order
      gradient = torch::zeros({kRows, 3}).index_add_(0, gradient._indices()[0], gradient._values());
    optimizer_->step();
    return loss.detach();
  }

  Clicks net;

 private:
  const bool takes_sparse_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

void expect_same_bits(const Case& c, const HostedUpdateOptions& options, const Partitioner& partitioner) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), partitioner);
  ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Clicks>();
  model.set_optimizer(c.spec, options);
  Alone alone(c, *model.module());
  for (std::int64_t step = 0; step < 8; ++step) {
    const auto [loss, is_used] = coordinator
                                     .schedule(
                                         [](Hosted<Clicks>& net, std::int64_t number) {
                                           const auto value = loss_of(*net, number);
                                           value.backward();
                                           const bool used = net.push();
                                           return std::pair(value.detach(), used);
                                         },
                                         model, step)
                                     .get();
    EXPECT_TRUE(is_used);
    EXPECT_TRUE(torch::equal(loss, alone.step(step))) << c.name << " step " << step;
  }
  coordinator.join();
  const auto trained = model.module();
  EXPECT_TRUE(torch::equal(trained->table->table()->value(), alone.net.table->parameters()[0])) << c.name;
  EXPECT_TRUE(torch::equal(trained->first->weight, alone.net.first->weight)) << c.name;
  EXPECT_TRUE(torch::equal(trained->second->bias, alone.net.second->bias)) << c.name;
  // Nobody else was there: no gradient has missed an update.
  for (const std::size_t server : {0, 1}) EXPECT_EQ(strategy.variables()->client().statistics(server).staleness.size(), 1U);
}

TEST(HostedEquality, OneWorkerTrainsAsOneProcess) {
  for (const auto& c : cases()) expect_same_bits(c, {}, FixedShardsPartitioner(3));
}

TEST(HostedEquality, OneWorkerTrainsAsOneProcessInSynchronousSteps) {
  for (const auto& c : cases()) expect_same_bits(c, {.gradients_per_step = 1}, nullptr);
}

}  // namespace
}  // namespace lockstep
