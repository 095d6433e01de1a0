#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// Small models and loops for comparing R replicas with one process.

namespace lockstep::testing {

struct Mlp : torch::nn::Module {
  Mlp()
      : first(register_module("first", torch::nn::Linear(6, 16))), second(register_module("second", torch::nn::Linear(16, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first, second;
};

// Large enough for its gradients to be summed where they are, beside small ones in a bucket.
struct WideMlp : torch::nn::Module {
  WideMlp()
      : first(register_module("first", torch::nn::Linear(6, 80))),
        middle(register_module("middle", torch::nn::Linear(80, 80))),
        last(register_module("last", torch::nn::Linear(80, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(middle(torch::relu(first(x))))); }
  torch::nn::Linear first, middle, last;
};

// Batch norm is used in eval mode: then it is the same function of every example, wherever it is computed.
struct Cnn : torch::nn::Module {
  Cnn()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(4))),
        head(register_module("head", torch::nn::Linear(4 * 3 * 3, 3))) {
    to(torch::kDouble);
    norm->running_mean.uniform_(-0.1, 0.1);
    norm->running_var.uniform_(0.5, 1.5);
    norm->eval();
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto image = x.reshape({x.size(0), 1, 6, 6});
    return head(torch::max_pool2d(torch::relu(norm(conv(image))), 2).flatten(1));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear head;
};

struct Embedder : torch::nn::Module {
  Embedder()
      : table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 5).sparse(true)))),
        head(register_module("head", torch::nn::Linear(4 * 5, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& ids) { return head(table(ids).flatten(1)); }
  torch::nn::Embedding table;
  torch::nn::Linear head;
};

struct Problem {
  torch::Tensor inputs;
  torch::Tensor labels;
};

template <typename Net>
Problem make_problem(std::int64_t rows) {
  torch::manual_seed(11);
  const auto labels = torch::randint(0, 3, {rows});
  if constexpr (std::is_same_v<Net, Mlp> || std::is_same_v<Net, WideMlp>)
    return {torch::randn({rows, 6}, torch::kDouble), labels};
  else if constexpr (std::is_same_v<Net, Cnn>) return {torch::randn({rows, 36}, torch::kDouble), labels};
  else return {torch::randint(0, 40, {rows, 4}), labels};
}

inline torch::Tensor per_example_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits, labels,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

using Weights = std::vector<torch::Tensor>;

inline Weights copy_weights(const torch::nn::Module& module) {
  Weights weights;
  for (const auto& parameter : module.parameters()) weights.push_back(parameter.detach().clone());
  return weights;
}

constexpr std::int64_t kRows = 53;
constexpr std::int64_t kBatch = 12;  // the last of five batches has 5 rows
constexpr int kSteps = 50;

// The loop as a LibTorch user writes it, on one device.
template <typename Net, typename X, typename Options>
Weights train_alone(const Options& options) {
  const auto problem = make_problem<Net>(kRows);
  torch::manual_seed(5);
  Net net;
  X optimizer(net.parameters(), options);
  std::int64_t row = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto end = std::min(row + kBatch, kRows);
    optimizer.zero_grad();
    const auto x = problem.inputs.slice(0, row, end);
    per_example_loss(net.forward(x), problem.labels.slice(0, row, end)).mean().backward();
    optimizer.step();
    row = end == kRows ? 0 : end;
  }
  return copy_weights(net);
}

// The same under a strategy.
template <typename Net, typename X, typename Options>
std::vector<Weights> train_mirrored(Strategy& strategy, const Options& options, const OptimizerOptions& with = {}) {
  const auto problem = make_problem<Net>(kRows);
  auto dataset = data::Dataset::from_tensor_slices({problem.inputs, problem.labels}).batch(kBatch).repeat();
  auto distributed = strategy.experimental_distribute_dataset(dataset);
  torch::manual_seed(5);
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  auto optimizer = lockstep::optimizer<X>(model, options, with);
  int step = 0;
  for (auto batch : distributed) {
    std::int64_t rows = 0;
    for (const auto& part : batch) rows += part[1].size(0);
    strategy.run(
        [&](const torch::Tensor& x, const torch::Tensor& y) {
          compute_average_loss(per_example_loss(model->forward(x), y), rows).backward();
          optimizer.step();
        },
        batch);
    if (++step == kSteps) break;
  }
  std::vector<Weights> weights;
  for (std::size_t replica = 0; replica < model.size(); ++replica) weights.push_back(copy_weights(model.at(replica)));
  return weights;
}

// The largest difference, relative to the largest weight.
inline double relative_difference(const Weights& a, const Weights& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, ((a[i] - b[i]).abs().max() / b[i].abs().max().clamp_min(1e-12)).item<double>());
  return worst;
}

inline bool is_same_bits(const Weights& a, const Weights& b) {
  bool is_same = a.size() == b.size();
  for (std::size_t i = 0; is_same && i < a.size(); ++i) is_same = torch::equal(a[i], b[i]);
  return is_same;
}

}  // namespace lockstep::testing
