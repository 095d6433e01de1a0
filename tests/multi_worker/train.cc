#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>

#include "tests/multi_worker/report.h"
#include "tests/multi_worker/scenarios.h"

namespace lockstep::testing {
namespace {

// Convolutions, batch norm in evaluation mode only where asked, dropout: all that must not depend on who computes it.
struct NetImpl : torch::nn::Module {
  NetImpl(bool with_norm, double dropped) : has_norm(with_norm), dropout(dropped) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("dropout", dropout);
    if (has_norm) register_module("norm", norm);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1->forward(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);
    if (has_norm) x = norm->forward(x);
    x = torch::relu(fc1->forward(x.flatten(1)));
    return torch::log_softmax(fc2->forward(dropout->forward(x)), 1);
  }
  const bool has_norm;
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 8, 3)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(8, 16, 3)};
  torch::nn::BatchNorm2d norm{16};
  torch::nn::Linear fc1{torch::nn::Linear(400, 64)};
  torch::nn::Linear fc2{torch::nn::Linear(64, 10)};
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Net);

data::Dataset images(std::int64_t rows) {
  torch::manual_seed(7);
  return data::Dataset::from_tensor_slices(
      data::Element{torch::randn({rows, 1, 28, 28}), torch::randint(10, {rows}, torch::kLong)});
}

}  // namespace

void train(const Parameters& parameters) {
  const auto images_of_job = images(420);
  at::globalContext().setDeterministicCuDNN(true);
  // Seeds differ between workers on purpose: worker 0's count.
  torch::manual_seed(parameters.number("seed", 1));
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto batch = parameters.number("batch", 24);
  auto distributed = strategy.experimental_distribute_dataset(images_of_job.shuffle(420).batch(batch).repeat());
  const auto scope = strategy.scope();
  auto model = mirrored<Net>(parameters.number("norm", 0) == 1, parameters.number("dropout", 30) / 100.0);
  auto optimizer = lockstep::optimizer<torch::optim::Adam>(
      model, 1e-3, OptimizerOptions{.gradients = {.overlap = parameters.number("overlap", 1) == 1, .bucket_bytes = 64 << 10}});
  double last = 0;
  int left = parameters.number("steps", 20);
  for (auto part : distributed) {
    const auto losses = strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          const auto each = torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None);
          const auto loss = compute_average_loss(each, batch);
          loss.backward();
          optimizer.step();
          return loss.detach();
        },
        part);
    last = strategy.reduce("sum", losses).item<double>();
    if (left == parameters.number("steps", 20)) std::cout << "begun" << std::endl;
    if (parameters.number("verbose", 0) == 1) std::cout << "step " << left << " loss " << last << std::endl;
    if (--left == 0) break;
  }
  std::cout << "replicas " << strategy.num_replicas_in_sync() << "\n"
            << "loss " << last << "\n"
            << "buffers " << digest(model->buffers()) << "\n"
            << "weights " << digest(model->parameters()) << std::endl;
}

}  // namespace lockstep::testing
