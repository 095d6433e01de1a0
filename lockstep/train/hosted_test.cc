#include "lockstep/train/hosted.h"

#include <torch/torch.h>

#include "lockstep/train/optimizers/optimizers.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::code_of;
using testing::ServerCluster;

struct Net : torch::nn::Module {
  explicit Net(std::int64_t width)
      : first(register_module("first", torch::nn::Linear(4, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        second(register_module("second", torch::nn::Linear(width, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};

struct Words : torch::nn::Module {
  Words(std::int64_t rows, std::int64_t columns)
      : table(register_module("table", HostedEmbedding(rows, columns))),
        top(register_module("top", torch::nn::Linear(columns, 1))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return top(table(ids).mean(1)); }
  HostedEmbedding table;
  torch::nn::Linear top;
};

torch::Tensor inputs(std::int64_t step) { return (torch::arange(32, torch::kFloat).reshape({8, 4}) * 0.3 + step).sin(); }
torch::Tensor labels() { return torch::arange(8, torch::kLong) % 3; }
torch::Tensor ids(std::int64_t step) { return (torch::arange(24, torch::kLong).reshape({8, 3}) * 7 + step * 5) % 40; }

template <typename M>
void expect_equal_bits(M& a, M& b) {
  const auto there = b.named_parameters();
  for (const auto& item : a.named_parameters()) EXPECT_TRUE(torch::equal(item.value(), there[item.key()])) << item.key();
  for (const auto& item : a.named_buffers())
    EXPECT_TRUE(torch::equal(item.value(), b.named_buffers()[item.key()])) << item.key();
}

// One worker: the servers see the same gradients in the same order as one process.
template <typename Spec>
void expect_same_training(const Spec& spec, const Partitioner& partitioner) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), partitioner);
  ClusterCoordinator coordinator(strategy);
  torch::manual_seed(1);
  auto model = strategy.hosted<Net>(std::int64_t{6});
  model.set_optimizer(spec);
  torch::manual_seed(1);
  Net alone(6);
  const auto optimizer = spec.make(alone.parameters());
  std::vector<RemoteValue<torch::Tensor>> losses;
  for (std::int64_t step = 0; step < 8; ++step) {
    losses.push_back(coordinator.schedule(
        [](Hosted<Net>& net, torch::Tensor x, torch::Tensor y) {
          const auto loss = torch::cross_entropy_loss(net->forward(x), y);
          loss.backward();
          net.push();
          return loss.detach();
        },
        model, inputs(step), labels()));
    for (auto& parameter : alone.parameters()) parameter.mutable_grad() = torch::Tensor();
    const auto loss = torch::cross_entropy_loss(alone.forward(inputs(step)), labels());
    loss.backward();
    optimizer->step();
    EXPECT_TRUE(torch::equal(losses.back().get(), loss.detach())) << spec.kind() << " step " << step;
  }
  coordinator.join();
  expect_equal_bits(alone, *model.module());
}

TEST(Hosted, WithOneWorkerTrainsAsOneProcess) {
  expect_same_training(SGD(0.1), nullptr);
  expect_same_training(SGD({.learning_rate = 0.1, .momentum = 0.9}), FixedShardsPartitioner(2));
  expect_same_training(Adam(0.01), FixedShardsPartitioner(3));
}

TEST(Hosted, AnEmbeddingTrainsAsATableInOneProcess) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(3));
  ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Words>(std::int64_t{40}, std::int64_t{2});
  model.set_optimizer(SGD(0.1));
  const auto begin = model.module();
  Words alone(40, 2);
  {
    const torch::NoGradGuard no_grad;
    alone.parameters()[0].copy_(begin->table->table()->value());
    alone.top->weight.copy_(begin->top->weight);
    alone.top->bias.copy_(begin->top->bias);
  }
  const auto optimizer = SGD(0.1).make(alone.parameters());
  for (std::int64_t step = 0; step < 6; ++step) {
    const auto loss = coordinator.schedule(
        [](Hosted<Words>& net, torch::Tensor x) {
          const auto value = net->forward(x).square().mean();
          value.backward();
          net.push();
          return value.detach();
        },
        model, ids(step));
    for (auto& parameter : alone.parameters()) parameter.mutable_grad() = torch::Tensor();
    const auto value = alone.forward(ids(step)).square().mean();
    value.backward();
    optimizer->step();
    EXPECT_TRUE(torch::equal(loss.get(), value.detach())) << "step " << step;
  }
  EXPECT_TRUE(torch::equal(model.module()->table->table()->value(), alone.parameters()[0]));
}

struct Tied : torch::nn::Module {
  Tied() : first(register_module("first", torch::nn::Linear(4, 4))), second(register_module("second", first)) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second;
};

TEST(Hosted, ALayerThatIsThereTwiceIsOneAndTrainsAsInOneProcess) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  torch::manual_seed(1);
  auto model = strategy.hosted<Tied>();
  model.set_optimizer(SGD(0.1));
  torch::manual_seed(1);
  Tied alone;
  const auto optimizer = SGD(0.1).make(alone.first->parameters());
  for (std::int64_t step = 0; step < 4; ++step) {
    coordinator.schedule(
        [](Hosted<Tied>& net, torch::Tensor x) {
          net->forward(x).square().mean().backward();
          net.push();
        },
        model, inputs(step));
    for (auto& parameter : alone.first->parameters()) parameter.mutable_grad() = torch::Tensor();
    alone.forward(inputs(step)).square().mean().backward();
    optimizer->step();
  }
  coordinator.join();
  EXPECT_EQ(model.variable_names(), (std::vector<std::string>{"first.weight", "first.bias"}));
  expect_equal_bits(alone, *model.module());
}

TEST(Hosted, GradientsThatAClosureDidNotPushAreNotTheNextOnes) {
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  ClusterCoordinator coordinator(strategy);
  auto model = strategy.hosted<Words>(std::int64_t{40}, std::int64_t{2});
  model.set_optimizer(SGD(1));
  const auto begin = model.module()->top->weight.detach().clone();
  const auto rows = model.module()->table->table()->value();
  coordinator.schedule([](Hosted<Words>& net, torch::Tensor x) { net->forward(x).sum().backward(); }, model, ids(0));
  coordinator.join();
  coordinator.schedule(
      [](Hosted<Words>& net, torch::Tensor x) {
        net->forward(x).sum().backward();
        throw std::runtime_error("fails before its push");
      },
      model, ids(0));
  EXPECT_EQ(code_of([&] { coordinator.join(); }), ErrorCode::kInternal);
  coordinator.schedule([](Hosted<Words>& net) { net.push(); }, model);
  coordinator.join();
  EXPECT_TRUE(torch::equal(model.module()->top->weight, begin));
  EXPECT_TRUE(torch::equal(model.module()->table->table()->value(), rows));
}

TEST(Hosted, OnTheCoordinatorUsesOfAnEmbeddingAreNotKept) {
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  auto model = strategy.hosted<Words>(std::int64_t{40}, std::int64_t{2});
  model.set_optimizer(SGD(1));
  const auto net = model.module();
  net->forward(ids(0)).sum().backward();
  EXPECT_TRUE(net->table->take_gradients().empty());
  EXPECT_EQ(code_of([&] { net->table(torch::tensor({0.5F})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { net->table(torch::tensor({40})); }), ErrorCode::kOutOfRange);
}

TEST(Hosted, RefusesWhatCannotBe) {
  EXPECT_EQ(code_of([] { HostedEmbedding(0, 3); }), ErrorCode::kInvalidArgument);
  const internal::HostingScope hosting;
  HostedEmbedding unbound(3, 3);
  EXPECT_EQ(code_of([&] { unbound->forward(torch::tensor({1})); }), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep
