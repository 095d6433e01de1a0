#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>

#include "tests/multi_worker/report.h"
#include "tests/multi_worker/scenarios.h"

namespace lockstep::testing {
namespace {

struct Net : torch::nn::Module {
  Net()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3)))),
        fc(register_module("fc", torch::nn::Linear(8 * 13 * 13, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto pooled = torch::max_pool2d(torch::relu(conv(x)), 2).flatten(1);
    return fc(torch::dropout(pooled, 0.3, is_training()));
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear fc;
};

}  // namespace

void fit(const Parameters& parameters) {
  torch::manual_seed(parameters.number("seed", 1));
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const auto images = data::fashion_mnist("train").take(parameters.number("images", 2000));
  const auto begun = LambdaCallback({.on_train_batch_end = [said = false](Training&) mutable {
    if (!std::exchange(said, true)) std::cout << "begun" << std::endl;
  }});
  const auto save_freq = parameters.number("save_freq", 5);
  const auto folder = parameters.text("folder", "backup");
  const auto history =
      model.fit(images.shuffle(1000, 3).batch(50), {.epochs = parameters.number("epochs", 5),
                                                    .validation_data = images.take(200).batch(100),
                                                    .callbacks = {begun, BackupAndRestore(folder, {.save_freq = save_freq})},
                                                    .verbose = Verbose::kSilent});
  std::vector<at::Tensor> weights;
  for (const auto& [name, tensor] : model.weights().tensors) weights.push_back(tensor);
  std::cout << "logs " << (history.logs.empty() ? "none" : show(history.logs.back())) << "\n"
            << "weights " << digest(weights) << std::endl;
}

}  // namespace lockstep::testing
