#include <torch/torch.h>

#include "lockstep/train/hosted.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Synchronous steps of several workers.

namespace lockstep {
namespace {

using testing::code_of;
using testing::ServerCluster;
using testing::ThrowsCode;

constexpr std::int64_t kWorkers = 3;
constexpr std::int64_t kBatch = 4;  // of a worker
constexpr std::int64_t kRows = 20;

// float32 with a table of rows, or float64 without.
struct Net : torch::nn::Module {
  explicit Net(bool is_double)
      : first(register_module("first", torch::nn::Linear(4, 8))), second(register_module("second", torch::nn::Linear(8, 1))) {
    if (is_double) to(torch::kDouble);
    else table = register_module("table", HostedEmbedding(kRows, 4));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto x = table.is_empty() ? torch::cat({ids, ids * 0.1}, 1).to(torch::kDouble).sin() : table(ids).mean(1);
    return second(torch::tanh(first(x)));
  }
  HostedEmbedding table{nullptr};
  torch::nn::Linear first;
  torch::nn::Linear second;
};

// Examples of worker `part` of a step, or of all of them.
torch::Tensor ids(std::int64_t step) {
  return (torch::arange(kWorkers * kBatch * 2, torch::kLong).reshape({-1, 2}) * 7 + step * 3) % kRows;
}
torch::Tensor part_of(const torch::Tensor& all, std::int64_t part) { return all.narrow(0, part * kBatch, kBatch); }
torch::Tensor loss_of(Net& net, const torch::Tensor& x) {
  const auto y = net.forward(x);
  return (y - x.sum(1, true).to(y.scalar_type()).mul(0.3).sin()).square().mean();
}

const auto kStep = remote_function("hosted_sync_test.step", [](Hosted<Net>& net, torch::Tensor x) {
  const auto loss = loss_of(*net, x);
  loss.backward();
  return net.push();
});

void expect_same_as_one_process(const OptimizerSpec& spec, bool is_double, double tolerance) {
  const ServerCluster cluster(2, kWorkers);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Net>(is_double);
  model.set_optimizer(spec, {.gradients_per_step = kWorkers});
  const auto begin = model.module();
  Net alone(is_double);
  {
    const torch::NoGradGuard no_grad;
    if (!is_double) alone.table->parameters()[0].copy_(begin->table->table()->value());
    for (auto& item : alone.named_parameters())
      if (const auto* found = begin->named_parameters().find(item.key())) item.value().copy_(*found);
  }
  const auto optimizer = spec.make(alone.parameters());
  for (std::int64_t step = 0; step < 10; ++step) {
    std::vector<RemoteValue<bool>> used;
    for (std::int64_t part = 0; part < kWorkers; ++part)
      used.push_back(coordinator.schedule(kStep, model, part_of(ids(step), part)));
    coordinator.join();
    for (const auto& one : used) EXPECT_TRUE(one.get());
    for (auto& parameter : alone.parameters()) parameter.mutable_grad() = torch::Tensor();
    loss_of(alone, ids(step)).backward();
    optimizer->step();
  }
  const auto trained = model.module();
  const auto close = [&](const torch::Tensor& a, const torch::Tensor& b) {
    return torch::allclose(a, b, tolerance, tolerance);
  };
  EXPECT_TRUE(close(trained->first->weight, alone.first->weight)) << spec.kind();
  EXPECT_TRUE(close(trained->second->bias, alone.second->bias)) << spec.kind();
  if (is_double) return;
  EXPECT_TRUE(close(trained->table->table()->value(), alone.table->parameters()[0])) << spec.kind();
}

TEST(HostedSync, SeveralWorkersTrainAsOneProcessOnTheWholeBatch) {
  expect_same_as_one_process(SGD(0.1), false, 1e-6);
  expect_same_as_one_process(Adagrad(0.05), false, 1e-6);
  expect_same_as_one_process(SGD({.learning_rate = 0.1, .momentum = 0.9}), true, 1e-10);
  expect_same_as_one_process(Adam(0.01), true, 1e-10);
  expect_same_as_one_process(Ftrl(0.1), true, 1e-10);
}

TEST(HostedSync, TheSlowestAreNotWaitedFor) {
  const ServerCluster cluster(2, kWorkers);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Net>(false);
  model.set_optimizer(SGD(0.1), {.gradients_per_step = 2});
  std::vector<RemoteValue<bool>> used;
  for (std::int64_t i = 0; i < 60; ++i) used.push_back(coordinator.schedule(kStep, model, part_of(ids(i), i % kWorkers)));
  coordinator.join();
  std::uint64_t count = 0;
  for (const auto& one : used) count += one.get() ? 1 : 0;
  model.module();
  std::uint64_t steps = 0;
  for (const auto& variable : strategy.variables()->client().describe(0))
    if (variable.description.name == "first.weight") steps = variable.version;
  EXPECT_EQ(steps, count / 2);  // every step is one update, of two gradients
  EXPECT_GE(steps, 10U);
}

TEST(HostedSync, RefusesStepsThatCannotBe) {
  const ServerCluster cluster(1, 2);
  ParameterServerStrategy strategy(cluster.chief());
  auto model = strategy.hosted<Net>(false);
  for (const int n : {0, -1})
    EXPECT_EQ(code_of([&] { model.set_optimizer(SGD(0.1), {.gradients_per_step = n}); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { model.set_optimizer(SGD(0.1), {.gradients_per_step = 3}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "gradients_per_step of 3", "2 workers"));
  model.set_optimizer(SGD(0.1), {.gradients_per_step = 2});
}

// hosted() has made the coordinator.
TEST(HostedSync, ABoundOfStalenessThatComesTooLateIsNotPassedOver) {
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  const auto model = strategy.hosted<Net>(false);
  EXPECT_THAT([&] { ClusterCoordinator(strategy, {.max_staleness = 1}); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "max_staleness of 1"));
  ParameterServerStrategy other(cluster.chief());
  const ClusterCoordinator first(other, {.max_staleness = 1});
  EXPECT_TRUE(ClusterCoordinator(other, {.max_staleness = 1}) == first);
  EXPECT_TRUE(ClusterCoordinator(other) == first);
}

}  // namespace
}  // namespace lockstep
