#include <torch/torch.h>

#include <iostream>
#include <string>

#include "lockstep/lockstep.h"
#include "tests/faults/job.h"

// A fit() on workers whose updates can be counted: `fit_job [key=value ...]`, as all of its tasks. The chief says "begun" when
// it has heard of the first step, and in the end "fitted STEPS UPDATES", or "error CODE MESSAGE" with exit code 3, or "mismatch
// ..." with 1.
//
// The module is one number; its gradient is always 1 and the learning rate 1, so that it says how many updates there were. A
// step that was begun again after its worker was lost may have made two.

namespace lockstep::testing {
namespace {

constexpr std::int64_t kRows = 4;  // of a batch

struct Counter : torch::nn::Module {
  Counter() : count(register_parameter("count", torch::zeros({1}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * 0 + count; }
  torch::Tensor count;
};

// Looks at what every epoch has counted.
struct Watch : Callback {
  bool can_be_late() const override { return true; }
  void on_train_begin(Training& training) override {
    std::cout << "goes on at " << training.iterations() << std::endl;
    begin = training.iterations();
  }
  void on_train_batch_end(Training& training) override {
    if (training.iterations() == begin + 1) std::cout << "begun" << std::endl;
  }
  void on_epoch_end(Training& training, Logs&) override {
    if (training.examples() == training.step() * kRows && training.step() == number("steps", 500)) return;
    throw Error(ErrorCode::kInternal,
                str("epoch ", training.epoch(), " had ", training.step(), " steps and ", training.examples(), " examples"));
  }
  std::int64_t begin = 0;
};

int lead() {
  ParameterServerStrategy strategy(nullptr, nullptr, {.join_timeout = std::chrono::seconds(30)});
  const ClusterCoordinator coordinator(strategy, {.silence_timeout = std::chrono::seconds(2)});
  Model model(strategy.hosted<Counter>());
  model.compile({.optimizer = SGD(1.0),
                 .loss = Loss("count", [](const torch::Tensor&, const torch::Tensor& y) { return y.select(1, 0); })});
  const auto epochs = static_cast<int>(number("epochs", 4));
  const auto steps = number("steps", 500);
  FitOptions options{.epochs = epochs, .steps_per_epoch = steps, .callbacks = {Watch()}, .verbose = Verbose::kSilent};
  if (parameters().contains("backup"))
    options.callbacks.add(BackupAndRestore(parameters()["backup"], {.save_freq = number("every", 100)}));
  model.fit(
      [] {
        const auto x = torch::ones({kRows, 1});
        return data::Dataset::from_tensor_slices({x, x}).batch(kRows).repeat();
      },
      options);
  const auto updates = -model.weights().find("count")->item<float>();
  const bool is_right = model.iterations() == epochs * steps && updates >= static_cast<float>(epochs * steps);
  std::cout << (is_right ? "fitted " : "mismatch ") << model.iterations() << " " << static_cast<std::int64_t>(updates)
            << std::endl;
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  const auto options = [] { return lockstep::ServerOptions(); };
  return lockstep::testing::run_job(argc, argv, options, lockstep::testing::lead);
}
