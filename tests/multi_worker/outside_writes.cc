#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>

#include "tests/multi_worker/report.h"
#include "tests/multi_worker/scenarios.h"

// Weights that a program writes outside run(), on all workers or on one.

namespace lockstep::testing {

void outside_writes(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  const auto model = mirrored<torch::nn::Linear>(3, 2);
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1));
  const auto step = [&] {
    strategy.run([&] {
      model->forward(torch::ones({1, 3})).square().sum().backward();
      optimizer.step();
    });
  };
  step();
  const auto who = parameters.text("who", "all");
  const int worker = strategy.worker_rank();
  if (who == "all" || (who == "chief" && worker == 0)) {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(1 + worker);  // worker 0's count
  }
  step();
  step();
  std::cout << "weights " << digest(model->parameters()) << std::endl;
}

}  // namespace lockstep::testing
