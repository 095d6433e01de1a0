#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The five models of the training benchmark, W1 to W5, as plain LibTorch modules. The Python peers build the same ones,
// layer for layer (bench/peers).

namespace bench {

// What one model is trained with. The batch is one replica's.
struct Workload {
  std::string name;
  std::int64_t batch;
  double learning_rate;
  bool is_adam;
  bool has_images;  // Fashion-MNIST; otherwise random numbers
};

// Throws std::invalid_argument for a name that is not W1 to W5.
Workload find_workload(const std::string& name);

enum class LossReduction { kMean, kNone };

class Net : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // Cross entropy, of one example each or their mean.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& target, LossReduction reduction) const;
};

std::shared_ptr<Net> make_net(const std::string& name);

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Workload& workload, std::vector<at::Tensor> parameters);

// (inputs, targets)
using Batch = std::pair<at::Tensor, at::Tensor>;

// The 16 batches that replica (or process) `part` cycles through: other examples for each part, the same in every run.
constexpr std::int64_t kBatches = 16;
std::vector<Batch> make_batches(const Workload& workload, std::int64_t part);

}  // namespace bench
