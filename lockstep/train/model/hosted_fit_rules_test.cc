#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// What fit and evaluate over modules on parameter servers refuse, and what callbacks see.

namespace lockstep {
namespace {

using testing::code_of;
using testing::ServerCluster;

struct Line : torch::nn::Module {
  Line() : line(register_module("line", torch::nn::Linear(2, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
  torch::nn::Linear line;
};

data::Dataset batches() {
  const auto x = (torch::arange(40, torch::kFloat).reshape({20, 2}) * 0.37).sin();
  return data::Dataset::from_tensor_slices({x, x.sum(1)}).batch(4);
}
const auto kTrain = [] { return batches(); };
const auto kEndless = [](const InputContext&) { return batches().repeat(); };
const auto kNothing = [](const InputContext&) { return batches().take(0); };
const auto kNotBatched = [] {
  return batches().unbatch().take(3).map([](torch::Tensor x, torch::Tensor y) { return std::make_tuple(x[0], y); });
};

struct Job {
  explicit Job(int workers = 1) : cluster(1, workers), strategy(cluster.chief()), model(strategy.hosted<Line>()) {
    model.compile({.optimizer = SGD(0.1), .loss = "mse"});
  }
  ServerCluster cluster;
  ParameterServerStrategy strategy;
  Model model;
};

FitOptions silent(FitOptions options) {
  options.verbose = Verbose::kSilent;
  if (!options.steps_per_epoch) options.steps_per_epoch = 5;
  return options;
}

struct Watcher : Callback {
  void on_train_batch_end(Training&) override { ++steps; }
  int steps = 0;
};
struct PatientWatcher : Watcher {
  bool can_be_late() const override { return true; }
};
class HiddenWatcher : public Callback {
  void on_test_batch_end(Training&) override {}
};

TEST(HostedFitRules, StepsMustBeKnown) {
  Job job;
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, {.verbose = Verbose::kSilent}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.steps_per_epoch = 0})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.steps_per_epoch = -2})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.validation_data = kTrain})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.evaluate(kTrain); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.evaluate(kTrain, {.steps = 0}); }), ErrorCode::kInvalidArgument);
  // In one process, too.
  Model alone(mirrored<Line>());
  alone.compile({.loss = "mse"});
  EXPECT_EQ(code_of([&] { alone.fit(kTrain, {.verbose = Verbose::kSilent}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(alone.fit(kTrain, silent({.epochs = 2})).epoch.size(), 2U);
  EXPECT_EQ(code_of([&] { alone.fit(batches(), silent({.steps_per_epoch = -1})); }), ErrorCode::kInvalidArgument);
}

TEST(HostedFitRules, DataThatCannotBeReadThereIsRefused) {
  Job job;
  EXPECT_EQ(code_of([&] { job.model.fit(batches(), silent({})); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.evaluate(batches()); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.fit(kNothing, silent({})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kNotBatched, silent({})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kEndless, silent({.steps_per_epoch = kUntilDataEnds})); }),
            ErrorCode::kInvalidArgument);
  job.model.compile({.optimizer = SGD(0.1), .loss = "mse", .pss_evaluation_shards = 4});
  EXPECT_EQ(code_of([&] { job.model.evaluate(kEndless); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.evaluate(kNothing); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(job.model.fit(kEndless, silent({})).epoch.size(), 1U);  // usable after all of them
}

TEST(HostedFitRules, CompileRefusesWhatWorkersCannotBeTold) {
  Job job;
  const double factor = 3;
  const Loss captures("mine", [factor](const torch::Tensor& a, const torch::Tensor& b) { return (a - b).sum(1) * factor; });
  EXPECT_EQ(code_of([&] { job.model.compile({.loss = captures}); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.compile({.loss = "mse", .metrics = {captures}}); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.compile({.loss = "mse", .train_step = [](TrainStep&) {}}); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.compile({.loss = "mse", .steps_per_update = 2}); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.compile({.optimizer = SGD({.use_ema = true}), .loss = "mse"}); }),
            ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { job.model.compile({.loss = "mse", .pss_evaluation_shards = -2}); }), ErrorCode::kInvalidArgument);
  // What was compiled before holds.
  EXPECT_EQ(job.model.fit(kTrain, silent({})).epoch.size(), 1U);
  EXPECT_EQ(code_of([&] { job.model.compile({.optimizer = Adam(0.1), .loss = "mse"}); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { job.model.compile({.optimizer = SGD(0.1), .loss = "mae"}); }), std::nullopt);
  EXPECT_EQ(code_of([&] { job.model.optimizer(); }), ErrorCode::kFailedPrecondition);
}

TEST(HostedFitRules, ATableCannotBeClippedWithAllOthers) {
  struct Words : torch::nn::Module {
    Words() : table(register_module("table", HostedEmbedding(4, 2))) {}
    torch::Tensor forward(const torch::Tensor& ids) { return table(ids).sum(1); }
    HostedEmbedding table;
  };
  const ServerCluster cluster(1, 1);
  ParameterServerStrategy strategy(cluster.chief());
  Model model(strategy.hosted<Words>());
  EXPECT_EQ(code_of([&] { model.compile({.optimizer = SGD({.global_clipnorm = 1.0}), .loss = "mse"}); }),
            ErrorCode::kUnimplemented);
}

TEST(HostedFitRules, CallbacksOfBatchesAreRefused) {
  Job job;
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.callbacks = {Watcher()}})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.callbacks = {HiddenWatcher()}})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.evaluate(kTrain, {.steps = 1, .callbacks = {HiddenWatcher()}}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] {
              job.model.fit(kTrain, silent({.callbacks = {LambdaCallback({.on_train_batch_end = [](Training&) {}})}}));
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { job.model.fit(kTrain, silent({.callbacks = {TensorBoard("logs", {.update_freq = 1})}})); }),
            ErrorCode::kInvalidArgument);
  auto patient = std::make_shared<PatientWatcher>();
  job.model.fit(kTrain, silent({.epochs = 2, .callbacks = {patient}}));
  EXPECT_EQ(patient->steps, 10);
}

TEST(HostedFitRules, CallbacksSetTheServersRate) {
  Job job;
  Model alone(mirrored<Line>());
  alone.set_weights(job.model.weights());
  alone.compile({.optimizer = SGD(0.1), .loss = "mse"});
  const auto with_rates = [] {
    return silent({.epochs = 3,
                   .callbacks = {LearningRateScheduler([](int epoch, double rate) { return epoch == 0 ? rate : rate / 2; })}});
  };
  const auto history = job.model.fit(kTrain, with_rates()), expected = alone.fit(batches(), with_rates());
  EXPECT_EQ(history.at("learning_rate"), expected.at("learning_rate"));
  for (const auto& [name, tensor] : alone.weights().tensors)
    EXPECT_TRUE(torch::equal(tensor, *job.model.weights().find(name))) << name;
}

TEST(HostedFitRules, TheBestWeightsGoBackToTheServers) {
  Job job;
  std::vector<CheckpointPart> weights;
  const auto history = job.model.fit(
      kTrain, silent({.epochs = 6,
                      .callbacks = {LambdaCallback({.on_epoch_end =
                                                        [&](Training& training, Logs& logs) {
                                                          weights.push_back(training.model().weights());
                                                          logs.set("watched", training.epoch() == 1 ? 0 : 1);
                                                        }}),
                                    EarlyStopping({.monitor = "watched", .patience = 2, .restore_best_weights = true})}}));
  EXPECT_EQ(history.epoch.size(), 4U);
  for (const auto& [name, tensor] : job.model.weights().tensors)
    EXPECT_TRUE(torch::equal(tensor, *weights[1].find(name))) << name;
}

TEST(HostedFitRules, NanEndsTraining) {
  Job job;
  const auto spoiled = [] {
    return batches().map(
        [](torch::Tensor x, torch::Tensor y) { return std::make_tuple(x, y * std::numeric_limits<double>::infinity()); });
  };
  EXPECT_EQ(code_of([&] { job.model.fit(spoiled, silent({.callbacks = {TerminateOnNaN()}})); }), ErrorCode::kOutOfRange);
}

TEST(HostedFitRules, AProgressBarCountsStepsThatHaveEnded) {
  Job job(2);
  std::FILE* const out = std::tmpfile();
  job.model.fit(kTrain, {.epochs = 2, .steps_per_epoch = 7, .callbacks = {ProgressBar(Verbose::kLine, out)}});
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  EXPECT_NE(text.find("Epoch 1/2 - 7/7"), std::string::npos) << text;
  EXPECT_NE(text.find("Epoch 2/2 - 7/7"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
