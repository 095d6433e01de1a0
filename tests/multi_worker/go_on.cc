#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>

#include "tests/multi_worker/report.h"
#include "tests/multi_worker/scenarios.h"

// A call that does not fit, in a training loop that goes on after it.

namespace lockstep::testing {

void go_on(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  const auto model = mirrored_from([] {
    torch::manual_seed(3);
    return torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 2));
  });
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1));
  const auto kind = parameters.text("kind", "none");
  bool is_wicked = strategy.cluster_resolver() != nullptr && strategy.cluster_resolver()->task_id() == 1 && kind != "none";
  int failures = 0;
  for (int done = 0; done < 6 && failures < 9;) {
    const auto misbehaves = [&](const char* what) { return done == 3 && kind == what && std::exchange(is_wicked, false); };
    const bool has_step = !misbehaves("skip_step");
    try {
      const auto losses = strategy.run([&] {
        const auto replica = get_replica_context()->replica_id_in_sync_group();
        const auto x = torch::arange(10 + done + replica, 20 + done + replica, torch::kFloat).reshape({2, 5}).sin();
        const auto loss = model->forward(x).square().sum();
        loss.backward();
        if (has_step) optimizer.step();
        return loss.detach();
      });
      if (has_step) ++done;  // what follows may fail
      if (!misbehaves("skip_reduce")) strategy.reduce("sum", losses);
      if (misbehaves("extra_reduce")) strategy.reduce("sum", losses);
    } catch (const Error& error) {
      ++failures;
      std::cout << "failure " << name_of(error.code()) << "\nmessage " << error.message() << std::endl;
    }
  }
  std::cout << "failures " << failures << "\n"
            << "weights " << digest(model->parameters()) << std::endl;
}

}  // namespace lockstep::testing
