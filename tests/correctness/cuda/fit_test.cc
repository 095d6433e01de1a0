#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// Model::fit on a GPU against the CPU, its precisions, and checkpoints that go from one to the other.

namespace lockstep::testing {
namespace {

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 64))),
        second(register_module("second", torch::nn::Linear(64, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first, second;
};

data::Dataset examples() {
  const auto x = (torch::arange(50 * 6, torch::kFloat).reshape({50, 6}) * 0.37).sin();
  return data::Dataset::from_tensor_slices({x, torch::arange(50, torch::kLong) % 3}).batch(16);
}

struct Trained {
  History history;
  CheckpointPart weights;
};

Trained train(const std::vector<std::string>& devices, Precision precision, const Callbacks& callbacks = {}) {
  torch::manual_seed(3);
  MirroredStrategy strategy(devices, {.replicas_per_device = devices[0] == "GPU:0" ? 2 : 1});
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .precision = precision});
  const auto history = model.fit(examples(), {.epochs = 20, .callbacks = callbacks, .verbose = Verbose::kSilent});
  return {history, model.weights()};
}

TEST(FitOnGpu, GivesTheLossesOfTheCpu) {
  const auto cpu = train({"CPU:0", "CPU:1"}, Precision::kFloat32).history.at("loss");
  const auto gpu = train({"GPU:0"}, Precision::kFloat32).history.at("loss");
  for (std::size_t e = 0; e < cpu.size(); ++e) EXPECT_NEAR(gpu[e], cpu[e], 2e-3 * cpu[e]) << "epoch " << e;
}

// The process goes on: no kernel has met a class that is not there.
TEST(FitOnGpu, ALabelThatIsNoClassIsALossThatIsNoNumber) {
  const auto scores = torch::rand({3, 4}, torch::kCUDA).requires_grad_();
  const auto loss = sparse_categorical_crossentropy({.from_logits = true});
  const std::vector<torch::Tensor> bad{torch::tensor({1, -3, 3}), torch::tensor({1, 4, 3}), torch::tensor({1, 1 << 20, 3}),
                                       torch::tensor({1.0, std::nan(""), 3.0}), torch::tensor({1.0, 1.5, 3.0})};
  for (const auto& labels : bad) {
    const auto losses = loss.per_example(labels.cuda(), scores).cpu();
    EXPECT_TRUE(losses[1].isnan().item<bool>());
    EXPECT_TRUE(losses[0].isfinite().item<bool>() && losses[2].isfinite().item<bool>());
  }
  const auto ignoring = sparse_categorical_crossentropy({.from_logits = true, .ignore_class = -1});
  EXPECT_TRUE(ignoring(torch::tensor({1, -1, 3}).cuda(), scores).isfinite().item<bool>());
}

TEST(FitOnGpu, TrainsInHalfPrecision) {
  const auto whole = train({"GPU:0"}, Precision::kFloat32).history.at("loss");
  for (const auto precision : {Precision::kBFloat16, Precision::kFloat16}) {
    const auto half = train({"GPU:0"}, precision).history.at("loss");
    EXPECT_LT(half.back(), half.front());
    EXPECT_NEAR(half.back(), whole.back(), 0.1 * whole.back());
  }
}

TEST(FitOnGpu, GoesOnFromACheckpointWithTheSameBits) {
  const ScratchFolder folder;
  const auto whole = train({"GPU:0"}, Precision::kFloat32).weights;
  const auto crash = LambdaCallback({.on_train_batch_end = [](Training& training) {
    if (training.iterations() == 30) throw std::runtime_error("crash");
  }});
  const BackupAndRestore backup(folder / "backup", {.save_freq = 7});
  EXPECT_THROW(train({"GPU:0"}, Precision::kFloat32, {backup, crash}), std::runtime_error);
  const auto resumed = train({"GPU:0"}, Precision::kFloat32, {backup}).weights;
  for (std::size_t i = 0; i < whole.tensors.size(); ++i)
    EXPECT_TRUE(torch::equal(resumed.tensors[i].second, whole.tensors[i].second)) << whole.tensors[i].first;
}

}  // namespace
}  // namespace lockstep::testing
