// A custom training loop with metrics that are exact over uneven batches, evaluation under the strategy, gradient
// accumulation and clipping.
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

struct Net : torch::nn::Module {
  Net() : hidden(register_module("hidden", torch::nn::Linear(784, 64))), out(register_module("out", torch::nn::Linear(64, 10))) {}
  torch::Tensor forward(torch::Tensor x) { return out(torch::dropout(torch::relu(hidden(x.flatten(1))), 0.1, is_training())); }
  torch::nn::Linear hidden, out;
};

// [metric]
// A metric is a pair of variables that every replica adds to on its own, and that are summed when they are read.
struct Accuracy {
  ls::Variable correct{0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum}};
  ls::Variable total{0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum}};

  void update(const torch::Tensor& logits, const torch::Tensor& labels) {
    correct.assign_add(logits.argmax(1).eq(labels).sum().to(torch::kFloat));
    total.assign_add(static_cast<double>(labels.size(0)));
  }
  double result() const { return (correct.value() / total.value()).item<double>(); }
  void reset() {
    correct.assign(0.0);
    total.assign(0.0);
  }
};
// [metric]

int main() {
  torch::manual_seed(1);
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto train = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("train").shuffle(60'000, 1).take(6000).batch(128));
  const auto test = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("test").take(2000).batch(300));

  const auto scope = strategy.scope();
  auto model = ls::mirrored<Net>();
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9), {.clip_global_norm = 5.0});
  Accuracy train_accuracy, test_accuracy;

  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (auto batch : train) {
      strategy.run([&](torch::Tensor x, torch::Tensor y) {
        const auto rows = ls::get_replica_context()->all_reduce("sum", x.size(0));  // the last batch is smaller
        // [accumulate]
        // Two half batches, one step: only the last backward() starts the sums over the replicas.
        const auto half = x.size(0) / 2;
        const auto loss_of = [&](torch::Tensor inputs, torch::Tensor labels) {
          auto logits = model->forward(inputs);
          train_accuracy.update(logits.detach(), labels);
          return ls::compute_average_loss(torch::nll_loss(torch::log_softmax(logits, 1), labels, {}, torch::Reduction::None), rows);
        };
        {
          const auto no_sync = optimizer.no_sync();
          loss_of(x.slice(0, 0, half), y.slice(0, 0, half)).backward();
        }
        loss_of(x.slice(0, half), y.slice(0, half)).backward();
        optimizer.step();
        // [accumulate]
      }, batch);
    }
    // [evaluate]
    const torch::NoGradGuard no_grad;
    model.eval();
    for (auto batch : test)
      strategy.run([&](torch::Tensor x, torch::Tensor y) { test_accuracy.update(model->forward(x), y); }, batch);
    model.train();
    // [evaluate]
    std::cout << "epoch " << epoch << "  accuracy " << train_accuracy.result() << "  test accuracy " << test_accuracy.result() << "\n";
    train_accuracy.reset();
    test_accuracy.reset();
  }
}
