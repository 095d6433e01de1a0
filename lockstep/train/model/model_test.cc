#include "lockstep/train/model/model.h"

#include <torch/torch.h>

#include <cmath>
#include <csignal>

#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::code_of;
using testing::cpus;

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 16))), second(register_module("second", torch::nn::Linear(16, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second;
};

constexpr std::int64_t kRows = 22;  // batches of 8, 8 and 6

struct Examples {
  torch::Tensor x = (torch::arange(kRows * 6, torch::kDouble).reshape({kRows, 6}) * 0.37).sin();
  torch::Tensor y = torch::arange(kRows, torch::kLong) % 3;
  torch::Tensor weights = torch::linspace(0.5, 2.0, kRows, torch::kDouble);

  data::Dataset batches(std::int64_t size = 8) const { return data::Dataset::from_tensor_slices({x, y}).batch(size); }
  data::Dataset weighted(std::int64_t size = 8) const { return data::Dataset::from_tensor_slices({x, y, weights}).batch(size); }
};

CompileOptions options_of(Metric metric = "accuracy") {
  return {
      .optimizer = SGD(0.1), .loss = sparse_categorical_crossentropy({.from_logits = true}), .metrics = {std::move(metric)}};
}

// The losses of every epoch, and the weights, of a plain LibTorch loop on whole batches.
struct Alone {
  std::vector<double> losses, accuracies;
  std::vector<torch::Tensor> weights;
};

Alone train_alone(int epochs, std::int64_t size, bool is_weighted, const std::map<std::int64_t, double>& classes = {}) {
  torch::manual_seed(3);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  const Examples data;
  Alone result;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double loss_sum = 0, correct = 0;
    for (std::int64_t at = 0; at < kRows; at += size) {
      const auto rows = std::min(size, kRows - at);
      const auto y = data.y.narrow(0, at, rows);
      const auto logits = net.forward(data.x.narrow(0, at, rows));
      auto losses = torch::nn::functional::cross_entropy(
          logits, y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
      if (is_weighted) losses = losses * data.weights.narrow(0, at, rows);
      for (const auto& [label, weight] : classes) losses = torch::where(y == label, losses * weight, losses);
      optimizer.zero_grad();
      (losses.sum() / rows).backward();
      optimizer.step();
      loss_sum += losses.sum().item<double>();
      correct += logits.argmax(1).eq(y).sum().item<double>();
    }
    result.losses.push_back(loss_sum / kRows);
    result.accuracies.push_back(correct / kRows);
  }
  for (const auto& p : net.parameters()) result.weights.push_back(p.detach().clone());
  return result;
}

void expect_same(const Alone& alone, const History& history, const MirroredModule<Net>& model, const std::string& what) {
  const auto losses = history.at("loss"), accuracies = history.at("accuracy");
  ASSERT_EQ(losses.size(), alone.losses.size()) << what;
  for (std::size_t e = 0; e < losses.size(); ++e) {
    EXPECT_NEAR(losses[e], alone.losses[e], 1e-9) << what << ", epoch " << e;
    EXPECT_NEAR(accuracies[e], alone.accuracies[e], 1e-9) << what << ", epoch " << e;
  }
  for (std::size_t i = 0; i < alone.weights.size(); ++i)
    EXPECT_TRUE(torch::allclose(model->parameters()[i], alone.weights[i], 1e-9, 1e-9)) << what << ", parameter " << i;
}

TEST(Model, FitsOnAnyNumberOfReplicasAsOneProcessDoes) {
  const auto alone = train_alone(3, 8, false);
  const auto weighted = train_alone(3, 8, true, {{1, 3.0}});
  for (const int replicas : {1, 2, 3, 5}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    torch::manual_seed(3);
    const auto module = mirrored<Net>();
    Model model(module);
    model.compile(options_of());
    const auto history = model.fit(Examples().batches(), {.epochs = 3, .verbose = Verbose::kSilent});
    expect_same(alone, history, module, str(replicas, " replicas"));
    EXPECT_EQ(model.iterations(), 9);

    torch::manual_seed(3);
    const auto other = mirrored<Net>();
    Model second(other);
    second.compile(options_of());
    const auto weighed =
        second.fit(Examples().weighted(), {.epochs = 3, .class_weight = {{1, 3.0}}, .verbose = Verbose::kSilent});
    expect_same(weighted, weighed, other, str(replicas, " replicas, weights"));
  }
}

TEST(Model, FitsWithoutAStrategy) {
  torch::manual_seed(3);
  const auto module = mirrored<Net>();
  Model model(module);
  model.compile(options_of());
  expect_same(train_alone(2, 8, false), model.fit(Examples().batches(), {.epochs = 2, .verbose = Verbose::kSilent}), module,
              "no strategy");
}

TEST(Model, AccumulatesGradientsOverStepsPerUpdate) {
  // Two batches of 4 are one of 8; the last batch of 6 comes as 4 and 2, whose mean of means differs, so 24 rows are cut to 16.
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  const auto module = mirrored<Net>(), other = mirrored_from([&] { return std::make_shared<Net>(); });
  for (std::size_t i = 0; i < module->parameters().size(); ++i) {
    const torch::NoGradGuard no_grad;
    other->parameters()[i].copy_(module->parameters()[i]);
  }
  Model one(module), two(other);
  one.compile(options_of());
  auto options = options_of();
  options.steps_per_update = 2;
  two.compile(options);
  const auto first = one.fit(Examples().batches(8).take(2), {.epochs = 2, .verbose = Verbose::kSilent});
  const auto second = two.fit(Examples().batches(4).take(4), {.epochs = 2, .verbose = Verbose::kSilent});
  for (std::size_t i = 0; i < module->parameters().size(); ++i)
    EXPECT_TRUE(torch::allclose(module->parameters()[i], other->parameters()[i], 1e-12, 1e-12));
  EXPECT_EQ(two.iterations(), 4);
  // Three batches: the one that is left over is an update too.
  two.fit(Examples().batches(4).take(3), {.verbose = Verbose::kSilent});
  EXPECT_EQ(two.iterations(), 6);
}

TEST(Model, EvaluatesAndPredictsInOrder) {
  const Examples examples;
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  const auto module = mirrored<Net>();
  Model model(module);
  const auto before = model.predict(examples.batches(5));  // also without compile()
  EXPECT_TRUE(torch::allclose(before, module->forward(examples.x)));
  model.compile(options_of());
  const auto logs = model.evaluate(examples.batches(5));
  const auto logits = module->forward(examples.x);
  EXPECT_NEAR(logs.at("loss"), torch::nn::functional::cross_entropy(logits, examples.y).item<double>(), 1e-12);
  EXPECT_NEAR(logs.at("accuracy"), logits.argmax(1).eq(examples.y).to(torch::kDouble).mean().item<double>(), 1e-12);
  EXPECT_NEAR(model.evaluate(examples.x, examples.y, {.batch_size = 7}).at("loss"), logs.at("loss"), 1e-12);
  EXPECT_TRUE(torch::allclose(model.predict(examples.x, 4), logits));
}

TEST(Model, TrainsOnSingleBatches) {
  const Examples examples;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Model model(mirrored<Net>());
  model.compile(options_of());
  const auto first = model.test_on_batch({examples.x, examples.y}).at("loss");
  EXPECT_NEAR(model.train_on_batch({examples.x, examples.y}).at("loss"), first, 1e-12);
  EXPECT_LT(model.train_on_batch({examples.x, examples.y}).at("loss"), first);
}

struct TwoHeads : torch::nn::Module {
  TwoHeads()
      : body(register_module("body", torch::nn::Linear(6, 8))),
        kind(register_module("kind", torch::nn::Linear(8, 3))),
        size(register_module("size", torch::nn::Linear(8, 1))) {
    to(torch::kDouble);
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    const auto h = torch::tanh(body(a * b));
    return {kind(h), size(h)};
  }
  torch::nn::Linear body, kind, size;
};

TEST(Model, TakesSeveralInputsAndOutputs) {
  const Examples examples;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Model model(mirrored<TwoHeads>());
  model.compile({.optimizer = SGD(0.05),
                 .loss = {sparse_categorical_crossentropy({.from_logits = true}), "mse"},
                 .loss_weights = {1.0, 0.5},
                 .output_metrics = {{"accuracy"}, {"mae"}}});
  const auto data = data::Dataset::from_tensor_slices({examples.x, examples.x + 1, examples.y, examples.weights}).batch(8);
  const auto history = model.fit(data, {.epochs = 4, .verbose = Verbose::kSilent});
  const auto& logs = history.logs.back();
  EXPECT_NEAR(logs.at("loss"), logs.at("output_0_loss") + 0.5 * logs.at("output_1_loss"), 1e-12);
  EXPECT_LT(logs.at("loss"), history.logs.front().at("loss"));
  EXPECT_TRUE(logs.find("output_0_accuracy") && logs.find("output_1_mae")) << show(logs);
  EXPECT_EQ(model.predict_all(data).size(), 2U);
}

TEST(Model, DividesByWhatCountsInTheWholeBatch) {
  // Of 22 labels, in batches of 8 over 5 replicas, class 1 does not count; a batch's parts have different numbers of the
  // others.
  const Examples examples;
  std::vector<double> losses;
  for (const int replicas : {1, 5}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    torch::manual_seed(3);
    Model model(mirrored<Net>());
    model.compile({.optimizer = SGD(0.1), .loss = sparse_categorical_crossentropy({.from_logits = true, .ignore_class = 1})});
    losses.push_back(model.fit(examples.batches(), {.epochs = 3, .verbose = Verbose::kSilent}).at("loss").back());
    // Four rows over five replicas: one has none, and the others wait for it.
    losses.push_back(model.test_on_batch({examples.x.narrow(0, 0, 4), examples.y.narrow(0, 0, 4)}).at("loss"));
  }
  EXPECT_NEAR(losses[0], losses[2], 1e-10);
  EXPECT_NEAR(losses[1], losses[3], 1e-10);
}

struct Dropping : torch::nn::Module {
  Dropping()
      : first(register_module("first", torch::nn::Linear(6, 16))),
        second(register_module("second", torch::nn::Linear(16, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::dropout(first(x), 0.3, is_training())); }
  torch::nn::Linear first, second;
};

// Stops the program's part of a training after so many updates, as a crash would.
struct Crash : std::runtime_error {
  Crash() : runtime_error("crash") {}
};

TEST(BackupAndRestore, MakesAnInterruptedTrainingEndWithTheSameBits) {
  const testing::ScratchFolder folder;
  auto examples = Examples();
  examples.x = examples.x.to(torch::kFloat);
  bool is_told = false;  // by SIGTERM, in place of a crash
  // The weights after 4 epochs of 6 steps; crash_at: the updates at which the program is thrown out, in turn.
  const auto train = [&](std::vector<std::int64_t> crash_at, std::int64_t save_freq) {
    for (;; crash_at.erase(crash_at.begin())) {
      torch::manual_seed(3);
      MirroredStrategy strategy(cpus(2), {.seed = 5});
      const auto scope = strategy.scope();
      Model model(mirrored<Dropping>());
      model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                     .loss = sparse_categorical_crossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
      const auto crash = LambdaCallback({.on_train_batch_end = [&](Training& training) {
        if (crash_at.empty() || training.iterations() != crash_at.front()) return;
        if (!is_told) throw Crash();
        std::raise(SIGTERM);
      }});
      try {
        const auto fresh = data::Dataset::from_tensor_slices({examples.x, examples.y}).shuffle(kRows, 7).batch(4);
        const auto history = model.fit(
            fresh, {.epochs = 4,
                    .callbacks = {BackupAndRestore(folder / "backup", {.save_freq = save_freq, .exit_fn = [] {}}), crash},
                    .verbose = Verbose::kSilent});
        return std::pair(model.weights(), history.logs.back());
      } catch (const Crash&) {
      } catch (const Error& error) {
        EXPECT_TRUE(is_told && error.code() == ErrorCode::kCancelled) << error.what();
      }
    }
  };
  const auto [weights, logs] = train({}, 0);
  for (const std::int64_t save_freq : {0, 1, 4}) {
    const auto [again, other_logs] = train({3, 11, 12, 20}, save_freq);
    for (std::size_t i = 0; i < weights.tensors.size(); ++i)
      EXPECT_TRUE(torch::equal(again.tensors[i].second, weights.tensors[i].second))
          << "save_freq " << save_freq << ", " << weights.tensors[i].first;
    EXPECT_EQ(show(other_logs), show(logs)) << "save_freq " << save_freq;
  }
  is_told = true;
  const auto [again, other_logs] = train({3, 11, 20}, 0);
  for (std::size_t i = 0; i < weights.tensors.size(); ++i)
    EXPECT_TRUE(torch::equal(again.tensors[i].second, weights.tensors[i].second)) << "told to go, " << weights.tensors[i].first;
}

TEST(Model, RunsATrainStepOfOnesOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  const auto module = mirrored<Net>();
  Model model(module);
  auto options = options_of();
  std::atomic<int> calls = 0;
  options.train_step = [&](TrainStep& step) {
    ++calls;
    const auto outputs = step.forward();
    step.minimize(step.loss(outputs));
    step.update_metrics(outputs);
  };
  model.compile(options);
  expect_same(train_alone(2, 8, false), model.fit(Examples().batches(), {.epochs = 2, .verbose = Verbose::kSilent}), module,
              "own step");
  EXPECT_EQ(calls, 12);
}

struct Recorder : Callback {
  explicit Recorder(std::vector<std::string>* list) : calls(list) {}
  void on_train_begin(Training&) override { calls->push_back("train"); }
  void on_epoch_begin(Training& training) override { calls->push_back(str("epoch ", training.epoch())); }
  void on_train_batch_end(Training& training) override {
    calls->push_back(str("batch ", training.step(), "/", training.steps()));
  }
  void on_test_begin(Training&) override { calls->push_back("test"); }
  void on_test_end(Training&, const Logs& logs) override { calls->push_back(logs.find("loss") ? "tested" : "?"); }
  void on_epoch_end(Training&, Logs& logs) override { calls->push_back(logs.find("val_loss") ? "end with val" : "end"); }
  void on_train_end(Training&) override { calls->push_back("done"); }
  std::vector<std::string>* calls;
};

TEST(Model, TellsCallbacksInOrder) {
  Model model(mirrored<Net>());
  model.compile(options_of());
  std::vector<std::string> calls;
  const auto history = model.fit(Examples().batches(16), {.epochs = 3,
                                                          .initial_epoch = 1,
                                                          .validation_data = Examples().batches(),
                                                          .validation_freq = 2,
                                                          .callbacks = {Recorder(&calls)},
                                                          .verbose = Verbose::kSilent});
  const std::vector<std::string> expected = {"train",        "epoch 1", "batch 1/2", "batch 2/2", "test", "tested",
                                             "end with val", "epoch 2", "batch 1/2", "batch 2/2", "end",  "done"};
  EXPECT_EQ(calls, expected);
  EXPECT_EQ(history.epoch, (std::vector<int>{1, 2}));
}

TEST(Model, GoesOnInTheDataWithStepsPerEpoch) {
  Model model(mirrored<Net>());
  model.compile(options_of());
  std::vector<std::string> calls;
  // Three batches a pass: epochs of 2 steps go round.
  const auto history = model.fit(Examples().batches(), {.epochs = 3, .steps_per_epoch = 2, .verbose = Verbose::kSilent});
  EXPECT_EQ(history.epoch.size(), 3U);
  EXPECT_EQ(model.iterations(), 6);
}

TEST(Model, StopsAndFailsWhenACallbackAsks) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile(options_of());
  const auto stop = LambdaCallback({.on_train_batch_end = [](Training& training) {
    if (training.iterations() == 4) training.stop();
  }});
  const auto history = model.fit(Examples().batches(), {.epochs = 5, .callbacks = {stop}, .verbose = Verbose::kSilent});
  EXPECT_EQ(history.epoch.size(), 2U);
  EXPECT_EQ(model.iterations(), 4);
  const auto fail = LambdaCallback(
      {.on_epoch_end = [](Training& training, Logs&) { training.fail(Error(ErrorCode::kOutOfRange, "enough")); }});
  EXPECT_EQ(code_of([&] { model.fit(Examples().batches(), {.callbacks = {fail}, .verbose = Verbose::kSilent}); }),
            ErrorCode::kOutOfRange);
  const auto raise = LambdaCallback({.on_train_batch_end = [](Training&) { throw std::logic_error("mine"); }});
  EXPECT_THROW(model.fit(Examples().batches(), {.callbacks = {raise}, .verbose = Verbose::kSilent}), std::logic_error);
  EXPECT_EQ(model.fit(Examples().batches(), {.verbose = Verbose::kSilent}).epoch.size(), 1U);  // and can be used again
}

TEST(Model, NamesTheParametersWhenTheLossIsNaN) {
  Model model(mirrored<Net>());
  model.compile(options_of());
  auto bad = Examples();
  bad.x[9][0] = std::nan("");
  try {
    model.fit(bad.batches(), {.epochs = 2, .callbacks = {TerminateOnNaN()}, .verbose = Verbose::kSilent});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
    EXPECT_NE(error.message().find("first.weight"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("step 2 of epoch 1"), std::string::npos) << error.message();
  }
}

TEST(Model, RefusesWhatCannotBeTrained) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  const auto data = Examples().batches();
  const auto fit = [&](const ModelData& on, FitOptions options) {
    options.verbose = Verbose::kSilent;
    return code_of([&] { model.fit(on, options); });
  };
  EXPECT_EQ(fit(data, {}), ErrorCode::kFailedPrecondition);
  model.compile(options_of());
  EXPECT_EQ(fit(data, {.steps_per_epoch = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fit(data, {.validation_split = 0.2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fit(data.take(0), {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fit(strategy.experimental_distribute_dataset(data), {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(fit(data::Dataset::from_tensor_slices({Examples().x}).batch(4), {}), ErrorCode::kInvalidArgument);  // no targets
  EXPECT_EQ(code_of([&] { model.compile({.loss = "mean_sqared_error"}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.compile({.loss = "mse", .metrics = {"acuracy"}}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.compile({.loss = "mse", .loss_weights = {1, 2}}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.compile({.loss = "mse", .precision = Precision::kFloat16}); }), ErrorCode::kUnimplemented);
  auto labels = Examples();
  labels.y = labels.y + 2;  // 2 to 4, of three classes
  EXPECT_EQ(fit(labels.batches(), {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(model.fit(Examples().x, Examples().y, {.verbose = Verbose::kSilent, .validation_split = 0.25})
                .logs[0]
                .find("val_loss")
                .has_value(),
            true);
}

TEST(Model, KeepsAndTakesWeights) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto module = mirrored<Net>();
  Model model(module);
  model.compile(options_of());
  const auto kept = model.weights();
  model.fit(Examples().batches(), {.verbose = Verbose::kSilent});
  EXPECT_FALSE(torch::equal(module->first->weight, kept.tensors[0].second));
  model.set_weights(kept);
  strategy.run([&] { EXPECT_TRUE(torch::equal(module->first->weight, kept.tensors[0].second)); });
  auto wrong = kept;
  wrong.tensors[0].first = "other";
  EXPECT_EQ(code_of([&] { model.set_weights(wrong); }), ErrorCode::kInvalidArgument);
  EXPECT_NE(model.summary().find("parameters: 163"), std::string::npos) << model.summary();
}

TEST(Model, ComputesInBFloat16) {
  struct FloatNet : Net {
    FloatNet() { to(torch::kFloat); }
  };
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Model model(mirrored<FloatNet>());
  auto options = options_of();
  options.precision = Precision::kBFloat16;
  model.compile(options);
  Examples examples;
  examples.x = examples.x.to(torch::kFloat);
  const auto history = model.fit(examples.batches(), {.epochs = 10, .verbose = Verbose::kSilent});
  EXPECT_LT(history.at("loss").back(), history.at("loss").front());
  EXPECT_EQ(model.predict(examples.x).scalar_type(), torch::kFloat);
}

}  // namespace
}  // namespace lockstep
