#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "tests/multi_worker/collectives.h"

// Parameters that a loss does not reach everywhere or not always, and learning rates.

namespace lockstep::testing {
namespace {

using Sgd = torch::optim::SGD;
using Tensors = std::vector<torch::Tensor>;

struct HeadsImpl : torch::nn::Module {
  HeadsImpl()
      : trunk(register_module("trunk", torch::nn::Linear(3, 4))),
        left(register_module("left", torch::nn::Linear(4, 2))),
        right(register_module("right", torch::nn::Linear(4, 2))),
        never(register_module("never", torch::nn::Linear(2, 2))) {
    to(torch::kDouble);
  }
  torch::Tensor loss(const torch::Tensor& x, bool goes_left) {
    return (goes_left ? left : right)(torch::tanh(trunk(x))).square().sum();
  }
  torch::nn::Linear trunk, left, right, never;
};

torch::Tensor input(int step, int replica) {
  return torch::arange(step + replica, step + replica + 6, torch::kDouble).reshape({2, 3}).sin();
}

Tensors copies(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

using GoesLeft = std::function<bool(int step, int replica)>;

Tensors train_alone(const Tensors& initial, int replicas, int steps, const GoesLeft& goes_left) {
  HeadsImpl net;
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < initial.size(); ++i) net.parameters()[i].copy_(initial[i]);
  }
  Sgd optimizer(net.parameters(), 0.05);
  for (int step = 0; step < steps; ++step) {
    for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
    for (int r = 0; r < replicas; ++r) net.loss(input(step, r), goes_left(step, r)).backward();
    optimizer.step();
  }
  return copies(net.parameters());
}

// Which head a replica uses depends on the step and the replica.
void report_heads(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what, const GoesLeft& goes_left) {
  constexpr int kSteps = 6;
  const auto scope = strategy.scope();
  for (const bool overlap : {true, false}) {
    auto model = mirrored<HeadsImpl>();
    const auto initial = copies(model->parameters());
    auto optimizer = lockstep::optimizer<Sgd>(model, 0.05, {.gradients = {.overlap = overlap}});
    for (int step = 0; step < kSteps; ++step)
      strategy.run([&](ReplicaContext& context) {
        const int r = context.replica_id_in_sync_group();
        model->loss(input(step, r), goes_left(step, r)).backward();
        optimizer.step();
      });
    const auto wanted = train_alone(initial, strategy.num_replicas_in_sync(), kSteps, goes_left);
    const auto found = copies(model->parameters());
    double most = 0;
    for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, (found[i] - wanted[i]).abs().max().item<double>());
    const auto name = str(what, overlap ? "" : ", no overlap");
    report.expect(name + ": as one process", most < 1e-10 ? "yes" : str("no, by ", most), "yes");
    report.all(name + ": bits", str(digest(found)));
  }
}

// Between two steps, and at another moment on every worker: some are in their next step already.
void report_zero_grad(MultiWorkerMirroredStrategy& strategy, Report& report) {
  constexpr int kSteps = 6;
  const auto goes_left = [](int, int) { return true; };
  const auto scope = strategy.scope();
  auto model = mirrored<HeadsImpl>();
  const auto initial = copies(model->parameters());
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.05);
  for (int step = 0; step < kSteps; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * ((strategy.worker_rank() + step) % 3)));
    optimizer.zero_grad();
    strategy.run([&](ReplicaContext& context) {
      const int r = context.replica_id_in_sync_group();
      model->loss(input(step, r), goes_left(step, r)).backward();
      optimizer.step();
    });
  }
  const auto wanted = train_alone(initial, strategy.num_replicas_in_sync(), kSteps, goes_left);
  double most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    most = std::max(most, (model->parameters()[i] - wanted[i]).abs().max().item<double>());
  report.expect("zero_grad between steps: as one process", most < 1e-10 ? "yes" : str("no, by ", most), "yes");
  report.all("zero_grad between steps: bits", str(digest(model->parameters())));
}

void report_learning_rate(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  auto model = mirrored<HeadsImpl>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.05);
  const auto before = copies(model->parameters());
  optimizer.set_learning_rate(0);
  strategy.run([&](ReplicaContext& context) {
    model->loss(input(0, context.replica_id_in_sync_group()), true).backward();
    optimizer.step();
  });
  report.expect("a learning rate of 0", str(digest(model->parameters())), str(digest(before)));
  strategy.run([&] { optimizer.set_learning_rate(0.25); });
  report.expect("a learning rate set in replicas", str(optimizer.learning_rate()), "0.25");
}

// Gradients are looked at between their sum and the step.
void report_synchronize(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  auto model = mirrored<HeadsImpl>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.05);
  const auto seen = strategy.run([&](ReplicaContext& context) {
    model->loss(input(0, context.replica_id_in_sync_group()), true).backward();
    optimizer.synchronize();
    auto gradient = model->trunk->bias.grad().clone();
    model->trunk->bias.mutable_grad().zero_();
    optimizer.step();
    return gradient;
  });
  report.each("gradients after synchronize", seen);
  report.all("gradients changed before the step", str(digest(model->parameters())));
  // Put there by hand: they are summed too.
  strategy.run([&](ReplicaContext& context) {
    for (auto& parameter : model->parameters())
      parameter.mutable_grad() = torch::full_like(parameter, context.replica_id_in_sync_group() + 1.0);
    optimizer.step();
  });
  report.all("gradients made by hand", str(digest(model->parameters())));
}

// Names of parameters that no replica of any worker has reached.
std::string unused_after(MultiWorkerMirroredStrategy& strategy, const GoesLeft& goes_left) {
  const auto scope = strategy.scope();
  auto model = mirrored<HeadsImpl>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.05);
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      const int r = context.replica_id_in_sync_group();
      model->loss(input(step, r), goes_left(step, r)).backward();
      optimizer.step();
    });
  return join(" ", optimizer.unused_parameters());
}

}  // namespace

void report_unused(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto expect = [&](const std::string& what, const std::string& wanted, const GoesLeft& goes_left) {
    report.expect(what, unused_after(strategy, goes_left), wanted);
  };
  expect("all go left", "right.weight right.bias never.weight never.bias", [](int, int) { return true; });
  expect("replica 1 goes right", "never.weight never.bias", [](int, int replica) { return replica != 1; });
  expect("replica 3 goes right", "never.weight never.bias", [](int, int replica) { return replica != 3; });
}

void report_odd_training(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_heads(strategy, report, "all alike", [](int, int) { return true; });
  report_heads(strategy, report, "unused in some replicas", [](int, int replica) { return replica % 2 == 0; });
  report_heads(strategy, report, "used in one replica only", [](int, int replica) { return replica != 3; });
  report_heads(strategy, report, "used from the third step on", [](int step, int) { return step < 3; });
  report_heads(strategy, report, "used late and in one replica",
               [](int step, int replica) { return step < 3 || replica != 1; });
  report_heads(strategy, report, "in turn", [](int step, int replica) { return (step + replica) % 2 == 0; });
  report_zero_grad(strategy, report);
  report_learning_rate(strategy, report);
  report_synchronize(strategy, report);
}

}  // namespace lockstep::testing
