#pragma once

#include <torch/torch.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// What the unit tests of training share: R replicas on parts of a batch against one process on all of it.

namespace lockstep::testing {

using Sgd = torch::optim::SGD;
using Weights = std::vector<torch::Tensor>;

constexpr std::int64_t kRows = 12;  // a global batch: even for 2, 3 and 4 replicas
constexpr int kSteps = 6;

// The global batch of a step.
inline torch::Tensor batch(int step, std::int64_t width) {
  return (torch::arange(kRows * width, torch::kDouble).reshape({kRows, width}) * 0.37 + step).sin();
}

// This replica's rows.
inline torch::Tensor part_of(const torch::Tensor& rows, const ReplicaContext& context) {
  return rows.tensor_split(context.num_replicas_in_sync())[static_cast<std::size_t>(context.replica_id_in_sync_group())];
}

// A small and a large layer: gradients that are copied into a bucket, and one (48 KB) that is summed where it is.
struct SmallAndLarge : torch::nn::Module {
  SmallAndLarge()
      : small(register_module("small", torch::nn::Linear(8, 64))), large(register_module("large", torch::nn::Linear(64, 96))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return large(torch::tanh(small(x))); }
  torch::nn::Linear small, large;
};

// A loss that adds up over rows.
inline torch::Tensor loss_of(SmallAndLarge& net, const torch::Tensor& x) { return net.forward(x).square().sum() / kRows; }

// The same beside a table whose gradient may be sparse.
struct WithTable : torch::nn::Module {
  explicit WithTable(bool is_sparse = true)
      : dense(register_module("dense", std::make_shared<SmallAndLarge>())),
        table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 8).sparse(is_sparse)))) {
    to(torch::kDouble);
  }
  // Rows look up repeated ids, some of them in several replicas.
  torch::Tensor looked_up(const torch::Tensor& x) {
    return (table((x.slice(1, 0, 3).abs() * 6).to(torch::kLong)).sum(1) * x).tanh();
  }
  torch::Tensor loss(const torch::Tensor& x) { return loss_of(*dense, x) + looked_up(x).sum(); }
  std::shared_ptr<SmallAndLarge> dense;
  torch::nn::Embedding table;
};

inline Weights weights_of(const torch::nn::Module& module) {
  Weights weights;
  for (const auto& p : module.parameters()) weights.push_back(p.detach().clone());
  return weights;
}

// Every parameter once, as an optimizer wants them.
inline std::vector<torch::Tensor> parameters_once(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parameters;
  std::set<const void*> seen;
  for (const auto& p : module.parameters())
    if (seen.insert(p.unsafeGetTensorImpl()).second) parameters.push_back(p);
  return parameters;
}

inline void expect_close(const Weights& a, const Weights& b, const std::string& what, double tolerance = 1e-10) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(torch::allclose(a[i], b[i], tolerance, tolerance))
        << what << ", parameter " << i << " differs by " << (a[i] - b[i]).abs().max().item<double>();
}

template <typename M>
void expect_equal_copies(const MirroredModule<M>& model, const std::string& what) {
  const auto first = weights_of(model.at(0));
  for (std::size_t r = 1; r < model.size(); ++r) {
    const auto other = weights_of(model.at(r));
    ASSERT_EQ(other.size(), first.size()) << what;
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(torch::equal(first[i], other[i])) << what << ", replica " << r << ", parameter " << i;
  }
}

// kSteps steps of one process: loss(module, step) on the whole batch.
template <typename Make, typename Loss>
Weights train_alone(const Make& make, const Loss& loss) {
  torch::manual_seed(3);
  const auto net = make();
  Sgd optimizer(parameters_once(*net), 0.01);
  for (int step = 0; step < kSteps; ++step) {
    for (auto& p : net->parameters()) p.mutable_grad().reset();
    loss(*net, step).backward();
    optimizer.step();
  }
  return weights_of(*net);
}

// kSteps steps of R replicas, each of them step_fn(model, optimizer, step, context). The weights of replica 0, when
// all copies are equal bit for bit.
template <typename Make, typename StepFn>
Weights train_together(int replicas, const OptimizerOptions& options, const Make& make, const StepFn& step_fn) {
  torch::manual_seed(3);
  MirroredStrategy strategy(cpus(replicas));
  const auto scope = strategy.scope();
  auto model = mirrored_from(make);
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01, options);
  for (int step = 0; step < kSteps; ++step)
    strategy.run([&](ReplicaContext& context) { step_fn(model, optimizer, step, context); });
  expect_equal_copies(model, str(replicas, " replicas"));
  return weights_of(model.at(0));
}

}  // namespace lockstep::testing
