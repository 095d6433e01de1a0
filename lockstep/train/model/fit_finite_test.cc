#include <torch/torch.h>

#include <cmath>

#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// Numbers that are none: in parameters, losses and labels.

namespace lockstep {
namespace {

using testing::code_of;
using testing::ThrowsCode;

// Finite where x is 0, and so is its loss; the gradient there is not.
struct Root : torch::nn::Module {
  Root() : weight(register_parameter("weight", torch::ones({1}, torch::kDouble))) {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::sqrt(x * weight); }
  torch::Tensor weight;
};

Model compiled(CompileOptions options = {.optimizer = SGD(0.1), .loss = "mse"}) {
  Model model(mirrored<Root>());
  model.compile(std::move(options));
  return model;
}

// Step `bad` of three has a gradient that is not finite.
data::Dataset batches(int bad) {
  auto x = torch::full({3, 1}, 4.0, torch::kDouble);
  x[bad] = 0;
  return data::Dataset::from_tensor_slices({x, torch::ones({3, 1}, torch::kDouble)}).batch(1);
}

FitOptions with(const Callbacks& callbacks) { return {.callbacks = callbacks, .verbose = Verbose::kSilent}; }

TEST(FitFinite, WhoSavesKeepsNoParametersThatAreNotFinite) {
  const testing::ScratchFolder folder;
  auto model = compiled();
  EXPECT_THAT(([&] { model.fit(batches(1), with({BackupAndRestore(folder / "backup", {.save_freq = 1})})); }),
              ThrowsCode(ErrorCode::kOutOfRange, "weight (1 of 1 values)"));
  auto again = compiled();
  again.fit(batches(1), {.epochs = 0, .callbacks = {BackupAndRestore(folder / "backup")}, .verbose = Verbose::kSilent});
  EXPECT_EQ(again.iterations(), 1);
  EXPECT_TRUE(std::isfinite(again.weights().tensors[0].second.item<double>()));
}

TEST(FitFinite, AWeightsFileKeepsTheLastGoodOnes) {
  const testing::ScratchFolder folder;
  auto model = compiled();
  const Callbacks callbacks{ModelCheckpoint(folder / "last.safetensors", {.save_freq = 1})};
  EXPECT_THAT(([&] { model.fit(batches(2), with(callbacks)); }), ThrowsCode(ErrorCode::kOutOfRange, "step 3"));
  EXPECT_TRUE(std::isfinite(load_weights(folder / "last.safetensors").tensors[0].second.item<double>()));
}

TEST(FitFinite, ParametersThatOnlyHaveALargeSumAreSaved) {
  const testing::ScratchFolder folder;
  struct Large : torch::nn::Module {
    Large() : weight(register_parameter("weight", torch::full({2}, 3e38F))) {}
    torch::Tensor forward(const torch::Tensor& x) { return x + 0 * weight[0]; }
    torch::Tensor weight;
  };
  Model model(mirrored<Large>());
  model.compile({.optimizer = SGD(0.0), .loss = "mse"});
  const auto one = torch::ones({1, 1});
  EXPECT_EQ(code_of([&] { model.fit(one, one, with({ModelCheckpoint(folder / "w.safetensors")})); }), std::nullopt);
  EXPECT_EQ(load_weights(folder / "w.safetensors").tensors.size(), 1U);
}

TEST(FitFinite, ATrainStepThatTellsNoLossIsTerminatedByItsParameters) {
  CompileOptions options{.optimizer = SGD(0.1)};
  options.train_step = [](TrainStep& step) { step.minimize((step.forward()[0] - step.targets().at(0)).square().sum()); };
  auto model = compiled(options);
  EXPECT_THAT(([&] { model.fit(batches(0), with({TerminateOnNaN()})); }), ThrowsCode(ErrorCode::kOutOfRange, "weight"));
  EXPECT_EQ(model.iterations(), 1);
}

TEST(FitFinite, LabelsThatAreNoWholeNumbersAreNoClasses) {
  const auto loss = sparse_categorical_crossentropy({.from_logits = true});
  const auto scores = torch::zeros({3, 4});
  EXPECT_NEAR(loss(torch::tensor({0.0, 3.0, 1.0}), scores).item<double>(), std::log(4.0), 1e-6);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1.5, 1e300})
    EXPECT_THAT(([&] {
                  loss(torch::tensor({0.0, bad, 1.0}, torch::kDouble), scores);
                }),
                ThrowsCode(ErrorCode::kInvalidArgument, "label 1 is"));
}

}  // namespace
}  // namespace lockstep
