#include <gmock/gmock.h>

#include "tests/correctness/models.h"

// Recorded steps on a GPU against the same steps as they are. Built only with a LibTorch that has CUDA.

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr FunctionOptions kRecorded{.is_recorded = true};

struct Dropped : torch::nn::Module {
  Dropped()
      : first(register_module("first", torch::nn::Linear(6, 32))),
        norm(register_module("norm", torch::nn::BatchNorm1d(32))),
        last(register_module("last", torch::nn::Linear(32, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = torch::relu(norm(first(x)));
    // Not torch::dropout, whose kernel has one generator for all replicas of a GPU.
    return last(is_training() ? hidden * torch::bernoulli(torch::full_like(hidden, 0.7)) : hidden);
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};

class RecordedSteps : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > 1) set_logical_device_configuration("GPU:0", GetParam());
    for (int i = 0; i < GetParam(); ++i) devices_.push_back(str("GPU:", i));
  }
  void TearDown() override { reset_logical_device_configuration(); }

  std::vector<std::string> devices_;
};

struct Trained {
  std::vector<double> losses;
  Weights weights;
  std::string why_not;
  std::int64_t iterations = 0;
  torch::Tensor generator;
};

// 12 steps on batches of equal shapes.
Trained train(const std::vector<std::string>& devices, const OptimizerSpec& spec, bool is_recorded) {
  torch::manual_seed(7);
  MirroredStrategy strategy(devices);
  const auto rows = 8 * strategy.num_replicas_in_sync();
  const auto x = torch::randn({rows * 12, 6});
  const auto y = torch::randint(0, 3, {rows * 12});
  auto distributed = strategy.experimental_distribute_dataset(data::Dataset::from_tensor_slices({x, y}).batch(rows));
  const auto scope = strategy.scope();
  auto model = mirrored<Dropped>();
  auto optimizer = lockstep::optimizer(model, spec, {.fuses_updates = true});
  auto step = [&](const torch::Tensor& inputs, const torch::Tensor& labels) {
    const auto loss = compute_average_loss(per_example_loss(model->forward(inputs), labels), rows);
    loss.backward();
    optimizer.step();
    return loss;
  };
  auto recorded = strategy.function(step, kRecorded);
  Trained trained;
  std::vector<PerReplica<torch::Tensor>> losses;
  for (auto batch : distributed) losses.push_back(is_recorded ? recorded(batch) : strategy.run(step, batch));
  for (const auto& loss : losses) trained.losses.push_back(strategy.reduce("sum", loss).item<double>());
  trained.weights = copy_weights(model.at(0));
  for (const auto& buffer : model.at(0).buffers()) trained.weights.push_back(buffer.clone());
  trained.why_not = recorded.why_not();
  trained.iterations = optimizer.iterations();
  trained.generator = strategy.replicas().generator_state(0);
  EXPECT_EQ(recorded.recordings(), is_recorded ? 1U : 0U);
  return trained;
}

TEST_P(RecordedSteps, HaveTheBitsOfStepsAsTheyAre) {
  const std::vector<OptimizerSpec> specs = {
      SGD(0.1), SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), Adam(0.01), AdamW({.learning_rate = 0.01}),
      Adam({.learning_rate =
                schedules::ExponentialDecay({.initial_learning_rate = 0.05, .decay_steps = 3, .decay_rate = 0.5})})};
  for (const auto& spec : specs) {
    const auto recorded = train(devices_, spec, true);
    const auto as_is = train(devices_, spec, false);
    EXPECT_THAT(recorded.why_not, IsEmpty()) << spec.kind();
    EXPECT_EQ(recorded.losses, as_is.losses) << spec.kind();
    EXPECT_TRUE(is_same_bits(recorded.weights, as_is.weights)) << spec.kind();
    EXPECT_EQ(recorded.iterations, as_is.iterations);
    EXPECT_TRUE(torch::equal(recorded.generator, as_is.generator)) << spec.kind();
  }
}

TEST_P(RecordedSteps, AStepThatAsksForANumberRunsAsItIsAndLosesNothing) {
  MirroredStrategy strategy(devices_);
  const auto scope = strategy.scope();
  auto model = mirrored<Dropped>();
  auto optimizer = lockstep::optimizer(model, Adam(0.01), {.fuses_updates = true});
  const auto x = torch::ones({4, 6}, torch::kCUDA);
  int calls = 0;
  auto step = strategy.function(
      [&](const torch::Tensor& inputs) {
        const auto loss = model->forward(inputs).square().mean();
        loss.backward();
        optimizer.step();
        if (replica_context().local_replica_id() == 0) ++calls;
        return loss.item<double>();
      },
      kRecorded);
  for (int i = 0; i < 8; ++i) step(x);
  EXPECT_FALSE(step.why_not().empty());
  EXPECT_EQ(step.recordings(), 0U);
  EXPECT_EQ(optimizer.iterations(), 8);
  EXPECT_GE(calls, 8);
  auto other = strategy.function([&](const torch::Tensor& inputs) { return model->forward(inputs).sum(); }, kRecorded);
  for (int i = 0; i < 6; ++i) other(x);
  EXPECT_THAT(other.why_not(), IsEmpty());
}

TEST_P(RecordedSteps, NewShapesAreRecordedUpToALimit) {
  MirroredStrategy strategy(devices_);
  auto twice = strategy.function([](const torch::Tensor& x) { return x * 2; },
                                 {.is_recorded = true, .warm_up = 1, .most_recordings = 2});
  for (int round = 0; round < 3; ++round)
    for (std::int64_t rows = 1; rows <= 3; ++rows) {
      const auto x = torch::full({rows, 2}, round + 1.0, torch::kCUDA);
      EXPECT_TRUE(torch::equal(twice(x)[0], x * 2));
    }
  EXPECT_EQ(twice.recordings(), 2U);
  std::vector<torch::Tensor> kept;
  const auto x = torch::ones({1, 2}, torch::kCUDA);
  for (int i = 0; i < 5; ++i) kept.push_back(twice(x + i)[0].view({2}));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(torch::equal(kept[static_cast<std::size_t>(i)], (x + i).view({2}) * 2)) << i;
  const auto across = torch::arange(2, torch::kCUDA).to(torch::kFloat).reshape({1, 2});
  EXPECT_TRUE(torch::equal(twice(torch::cat({across, across}).t().slice(1, 0, 1).t())[0], across * 2)) << "not contiguous";
  twice(torch::ones({3, 2}, torch::kCUDA));
  EXPECT_THAT(twice.why_not(), HasSubstr("most_recordings"));
}

TEST_P(RecordedSteps, FollowModesAndRestoredStates) {
  MirroredStrategy strategy(devices_);
  const auto scope = strategy.scope();
  auto model = mirrored<Dropped>();
  auto optimizer = lockstep::optimizer(model, Adam(0.01), {.fuses_updates = true});
  const auto x = torch::ones({4, 6}, torch::kCUDA);
  auto forward = strategy.function([&](const torch::Tensor& inputs) { return model->forward(inputs); }, kRecorded);
  auto step = strategy.function(
      [&](const torch::Tensor& inputs) {
        model->forward(inputs).square().mean().backward();
        optimizer.step();
      },
      kRecorded);
  model.eval();
  for (int i = 0; i < 5; ++i) forward(x);
  const auto evaluated = forward(x)[0];
  EXPECT_TRUE(torch::equal(evaluated, model.at(0).forward(x)));
  model.train();
  for (int i = 0; i < 6; ++i) step(x);
  const auto kept = optimizer.state();
  const auto weights = copy_weights(model.at(0));
  for (int i = 0; i < 3; ++i) step(x);
  model.eval();
  EXPECT_FALSE(torch::equal(forward(x)[0], evaluated));
  EXPECT_TRUE(torch::equal(forward(x)[0], model.at(0).forward(x)));
  optimizer.load_state(kept);
  EXPECT_EQ(optimizer.iterations(), 6);
  model.train();
  step(x);
  EXPECT_EQ(optimizer.iterations(), 7);
  EXPECT_THAT(step.why_not(), IsEmpty());
}

TEST_P(RecordedSteps, OfAnOptimizerThatWasReplacedAreNotDoneAgain) {
  MirroredStrategy strategy(devices_);
  const auto scope = strategy.scope();
  auto model = mirrored<Dropped>();
  std::optional<Optimizer> optimizer = lockstep::optimizer(model, Adam(0.01), {.fuses_updates = true});
  const auto x = torch::ones({4, 6}, torch::kCUDA);
  auto step = strategy.function(
      [&, first = *optimizer](const torch::Tensor& inputs) mutable {
        model->forward(inputs).square().mean().backward();
        first.step();
      },
      kRecorded);
  for (int i = 0; i < 6; ++i) step(x);
  EXPECT_THAT(step.why_not(), IsEmpty());
  optimizer = lockstep::optimizer(model, Adam(0.01), {.fuses_updates = true});
  EXPECT_EQ(code_of([&] { step(x); }), ErrorCode::kFailedPrecondition);
}

TEST_P(RecordedSteps, WithMetricsRunAsTheyAre) {
  MirroredStrategy strategy(devices_);
  const auto scope = strategy.scope();
  metrics::Metric mean = metrics::Mean();
  auto count = strategy.function([&](const torch::Tensor& x) { mean.update_state(x); }, kRecorded);
  for (int i = 0; i < 6; ++i) count(torch::full({2}, i, torch::TensorOptions(torch::kCUDA).dtype(torch::kFloat)));
  EXPECT_THAT(count.why_not(), HasSubstr("metric"));
  EXPECT_EQ(mean.result().item<double>(), 2.5);
}

INSTANTIATE_TEST_SUITE_P(, RecordedSteps, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep::testing
