#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/lockstep.h"
#include "tests/support/scrape.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// What comes before, between and after the steps of a fit() that go as they should.

namespace lockstep {
namespace {

using testing::code_of;
using testing::cpus;

struct Line : torch::nn::Module {
  Line() : line(register_module("line", torch::nn::Linear(2, 3))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return line(x.view({x.size(0), -1})); }
  torch::nn::Linear line;
};

torch::Tensor rows(std::int64_t count, std::int64_t columns = 2) {
  return (torch::arange(count * columns, torch::kDouble).reshape({count, columns}) * 0.7).sin();
}
torch::Tensor labels(std::int64_t count) { return torch::arange(count, torch::kLong) % 3; }

data::Dataset batches(std::int64_t count = 12, std::int64_t size = 4) {
  return data::Dataset::from_tensor_slices({rows(count), labels(count)}).batch(size);
}

CompileOptions options_of() {
  return {.optimizer = SGD(0.1), .loss = sparse_categorical_crossentropy({.from_logits = true}), .metrics = {"accuracy"}};
}

template <typename M = Line>
Model compiled(CompileOptions options = options_of()) {
  torch::manual_seed(4);
  Model model(mirrored<M>());
  model.compile(std::move(options));
  return model;
}

FitOptions silent(FitOptions options = {}) {
  options.verbose = Verbose::kSilent;
  return options;
}

TEST(Fit, UpdatesAgainAfterAStepThatFailed) {
  auto model = compiled();
  const auto bad = data::Dataset::from_tensor_slices({rows(4), labels(4) + 5}).batch(4);
  EXPECT_EQ(code_of([&] { model.fit(bad, silent()); }), ErrorCode::kInvalidArgument);
  model.fit(batches(), silent());
  EXPECT_EQ(model.iterations(), 3);
  model.train_on_batch({rows(4), labels(4)});
  EXPECT_EQ(model.iterations(), 4);
}

TEST(Fit, DoesNotKeepWhatAFailedStepHasLeft) {
  const testing::ScratchFolder folder;
  auto x = rows(12);
  x[9][0] = std::nan("");
  const auto data = data::Dataset::from_tensor_slices({x, labels(12)}).batch(4);
  auto model = compiled();
  const Callbacks callbacks{BackupAndRestore(folder / "backup", {.save_freq = 1}),
                            ModelCheckpoint(folder / "last.safetensors", {.save_freq = 1}), TerminateOnNaN()};
  EXPECT_EQ(code_of([&] { model.fit(data, silent({.callbacks = callbacks})); }), ErrorCode::kOutOfRange);
  for (const auto& [name, tensor] : load_weights(folder / "last.safetensors").tensors)
    EXPECT_TRUE(torch::isfinite(tensor).all().item<bool>()) << name;
  auto again = compiled();
  again.fit(batches(), silent({.epochs = 0, .callbacks = {BackupAndRestore(folder / "backup")}}));
  EXPECT_EQ(again.iterations(), 2);
  for (const auto& [name, tensor] : again.weights().tensors) EXPECT_TRUE(torch::isfinite(tensor).all().item<bool>()) << name;
}

TEST(Fit, DoesNotGoOnWithATrainingThatWasStopped) {
  const testing::ScratchFolder folder;
  const BackupAndRestoreOptions keep{.delete_checkpoint = false};
  const auto stop = LambdaCallback({.on_epoch_end = [](Training& training, Logs&) { training.stop(); }});
  auto model = compiled();
  model.fit(batches(), silent({.epochs = 5, .callbacks = {stop, BackupAndRestore(folder / "backup", keep)}}));
  auto again = compiled();
  const auto history = again.fit(batches(), silent({.epochs = 5, .callbacks = {BackupAndRestore(folder / "backup", keep)}}));
  EXPECT_EQ(history.epoch.size(), 0U);
  EXPECT_TRUE(torch::equal(again.weights().tensors[0].second, model.weights().tensors[0].second));
}

TEST(Fit, GivesCallbacksTheirOwnStateWhateverStandsBesideThem) {
  const testing::ScratchFolder folder;
  const BackupAndRestoreOptions keep{.delete_checkpoint = false};
  const auto plateau = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "loss", .patience = 7});
  compiled().fit(batches(), silent({.epochs = 2, .callbacks = {plateau, BackupAndRestore(folder / "backup", keep)}}));
  const auto again = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "loss", .patience = 7});
  const Callbacks more{ReduceLROnPlateau({.monitor = "loss"}), LambdaCallback({}), again,
                       BackupAndRestore(folder / "backup", keep)};
  compiled().fit(batches(), silent({.epochs = 2, .callbacks = more}));  // is at its end already
  EXPECT_EQ(again->save().values, plateau->save().values);
}

TEST(Fit, LeavesAtTheEndOfAnEpochThatHasNoUpdateBefore) {
  const testing::ScratchFolder folder;
  auto options = options_of();
  options.steps_per_update = 10;  // of 3 batches
  auto model = compiled(options);
  const auto told = LambdaCallback({.on_train_batch_end = [](Training& training) {
    if (training.step() == 2) std::raise(SIGTERM);
  }});
  EXPECT_EQ(code_of([&] {
              model.fit(batches(),
                        silent({.epochs = 3, .callbacks = {told, BackupAndRestore(folder / "backup", {.exit_fn = [] {}})}}));
            }),
            ErrorCode::kCancelled);
  EXPECT_EQ(model.iterations(), 1);
  auto again = compiled(options);
  const auto history = again.fit(batches(), silent({.epochs = 3, .callbacks = {BackupAndRestore(folder / "backup")}}));
  EXPECT_EQ(history.epoch, (std::vector<int>{1, 2}));
}

struct Normed : torch::nn::Module {
  Normed() : norm(register_module("norm", torch::nn::BatchNorm1d(1))), line(register_module("line", torch::nn::Linear(2, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return line(norm(x.unsqueeze(1)).squeeze(1)); }
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear line;
};

TEST(Fit, MeetsInOneOrderWhereAReplicaHasNoRows) {
  std::vector<double> losses;
  for (const int replicas : {1, 4}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    torch::manual_seed(4);
    const auto module = mirrored<Normed>();
    convert_sync_batch_norm(module);
    Model model(module);
    model.compile({.optimizer = SGD(0.1), .loss = sparse_categorical_crossentropy({.from_logits = true, .ignore_class = 2})});
    // The last batch has 2 rows.
    losses.push_back(model.fit(batches(6), silent({.epochs = 2})).at("loss").back());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-9);
}

TEST(Fit, IsNotDisturbedByAnEvaluationInTheMiddleOfAnEpoch) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto plain = compiled().fit(batches(), silent({.epochs = 2}));
  auto model = compiled();
  bool is_training = true;
  const auto look = LambdaCallback({.on_train_batch_end = [&](Training& training) {
    training.model().evaluate(batches(8));
    training.model().predict(rows(5));
    is_training = is_training && training.model().module()->here()->is_training();
  }});
  const auto history = model.fit(batches(), silent({.epochs = 2, .callbacks = {look}}));
  EXPECT_TRUE(is_training);
  EXPECT_EQ(history.at("loss"), plain.at("loss"));
  EXPECT_EQ(history.at("accuracy"), plain.at("accuracy"));
}

TEST(Fit, DividesRowsForValidationAsKerasDoes) {
  auto model = compiled();
  std::int64_t trained = 0;
  const auto count = LambdaCallback({.on_train_batch_end = [&](Training& training) { trained = training.examples(); }});
  model.fit(rows(10), labels(10), silent({.callbacks = {count}, .validation_split = 0.25}));
  EXPECT_EQ(trained, 7);
  // Given data goes before the split.
  model.fit(rows(10), labels(10), silent({.validation_data = batches(), .callbacks = {count}, .validation_split = 0.25}));
  EXPECT_EQ(trained, 10);
  EXPECT_EQ(code_of([&] { model.fit(rows(1), labels(1), silent({.validation_split = 0.5})); }), ErrorCode::kInvalidArgument);
}

TEST(Fit, ForgetsClassWeights) {
  auto weighted = compiled(), plain = compiled();
  weighted.fit(batches(), silent({.epochs = 0, .class_weight = {{0, 100.0}}}));
  EXPECT_EQ(weighted.train_on_batch({rows(6), labels(6)}).at("loss"), plain.train_on_batch({rows(6), labels(6)}).at("loss"));
}

TEST(Predict, TakesAnyModuleWhereAReplicaHasNoRows) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  torch::manual_seed(4);
  const auto module = mirrored<Line>();
  Model model(module);
  EXPECT_TRUE(torch::allclose(model.predict(rows(7), 3), module->forward(rows(7))));  // the last batch has one row
}

struct Flat : torch::nn::Module {
  Flat() : line(register_module("line", torch::nn::Linear(2, 1))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return line(x).squeeze(1); }
  torch::nn::Linear line;
};
struct Column : Flat {
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
};

TEST(Fit, TakesOutputsOfOneNumberEach) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const CompileOptions options{.optimizer = SGD(0.1), .loss = "mse", .metrics = {"mae"}};
  const auto y = rows(10, 1);
  const auto flat = compiled<Flat>(options).fit(rows(10), y.squeeze(1), silent({.batch_size = 4, .shuffle = false}));
  const auto column = compiled<Column>(options).fit(rows(10), y, silent({.batch_size = 4, .shuffle = false}));
  EXPECT_EQ(flat.at("loss"), column.at("loss"));
  EXPECT_EQ(flat.at("mae"), column.at("mae"));
}

TEST(Fit, GivesATrainStepWithoutALossItsTargets) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  CompileOptions options{.optimizer = SGD(0.1), .metrics = {"accuracy"}};
  options.train_step = [](TrainStep& step) {
    const auto outputs = step.forward();
    const auto losses = torch::nll_loss(torch::log_softmax(outputs[0], 1), step.targets().at(0), {}, torch::Reduction::Sum);
    step.minimize(losses / step.global_rows());
    step.update_metrics(outputs);
  };
  auto own = compiled(options), other = compiled();
  own.fit(batches(), silent());
  other.fit(batches(), silent());
  EXPECT_TRUE(torch::allclose(own.weights().tensors[0].second, other.weights().tensors[0].second, 1e-12, 1e-12));
  options.metrics.clear();
  auto without = compiled(options);
  EXPECT_EQ(without.fit(batches(), silent()).epoch.size(), 1U);
  EXPECT_EQ(without.iterations(), 3);
}

TEST(Fit, RefusesWhatWouldEndBadly) {
  const testing::ScratchFolder folder;
  auto model = compiled();
  const auto code = [&](const ModelData& data, FitOptions options) {
    return code_of([&] { model.fit(data, silent(std::move(options))); });
  };
  const auto endless = batches().repeat();
  EXPECT_EQ(code(endless, {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(batches(), {.validation_data = endless}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.evaluate(endless); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.predict(endless); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.fit(torch::Tensor(), torch::Tensor()); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { model.train_on_batch({torch::tensor(1.0), torch::tensor(1)}); }), ErrorCode::kInvalidArgument);
  const auto compile =
      LambdaCallback({.on_epoch_end = [](Training& training, Logs&) { training.model().compile(options_of()); }});
  EXPECT_EQ(code(batches(), {.callbacks = {compile}}), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code(batches(), {.callbacks = {LearningRateScheduler([](int, double) { return -1.0; })}}),
            ErrorCode::kInvalidArgument);
  auto scheduled = compiled(
      {.optimizer = SGD(schedules::ExponentialDecay({.initial_learning_rate = 0.1, .decay_steps = 1, .decay_rate = 0.5})),
       .loss = sparse_categorical_crossentropy({.from_logits = true})});
  EXPECT_EQ(code_of([&] { scheduled.fit(batches(), silent({.callbacks = {ReduceLROnPlateau()}})); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(scheduled.iterations(), 0);
  // A folder that cannot be written to is told before the first step.
  const auto before = model.iterations();
  std::ofstream(folder / "file") << "not a folder";
  EXPECT_NE(code(batches(), {.callbacks = {BackupAndRestore(folder / "file")}}), std::nullopt);
  EXPECT_NE(code(batches(), {.callbacks = {ModelCheckpoint(folder / "file")}}), std::nullopt);
  EXPECT_EQ(model.iterations(), before);
}

TEST(Fit, ChangesNoWeightsWhenItCannotGoOn) {
  const testing::ScratchFolder folder;
  const BackupAndRestoreOptions keep{.save_freq = 1, .delete_checkpoint = false};
  compiled().fit(batches(), silent({.callbacks = {BackupAndRestore(folder / "backup", keep)}}));
  auto other = compiled();
  const auto before = other.weights();
  EXPECT_EQ(code_of([&] {
              other.fit(batches(12, 3), silent({.epochs = 2, .callbacks = {BackupAndRestore(folder / "backup", keep)}}));
            }),
            ErrorCode::kInvalidArgument);
  for (const auto& [name, tensor] : other.weights().tensors) EXPECT_TRUE(torch::equal(tensor, *before.find(name))) << name;
}

TEST(Fit, SaysWhyABatchNormRefusesOneRow) {
  struct Rows : Normed {
    torch::Tensor forward(const torch::Tensor& x) { return line(norm(x.select(1, 0).unsqueeze(1)).expand({-1, 2})); }
  };
  MirroredStrategy strategy(cpus(4));
  const auto scope = strategy.scope();
  const auto module = mirrored<Rows>();
  convert_sync_batch_norm(module);
  Model model(module);
  model.compile(options_of());
  EXPECT_EQ(code_of([&] { model.fit(batches(4), silent()); }), ErrorCode::kInvalidArgument);
}

// Of one's own: only it knows that more is better.
TEST(Fit, KeepsTheBestByWhatTheMetricSays) {
  struct Steps : MetricRule {
    State zeros(const at::Tensor&, const at::Tensor&) const override { return {torch::zeros({}, torch::kDouble)}; }
    void add(State& state, const metrics::MetricBatch&) const override { state[0] += ++count; }
    at::Tensor result(const State& state) const override { return state[0]; }
    metrics::Direction direction() const override { return metrics::Direction::kUp; }
    mutable double count = 0;
  };
  auto options = options_of();
  options.metrics = {Metric("mine", std::make_shared<Steps>())};
  auto model = compiled(options);
  const auto stopping = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "mine"});
  EXPECT_EQ(model.fit(batches(), silent({.epochs = 4, .callbacks = {stopping}})).epoch.size(), 4U);
  EXPECT_EQ(stopping->best_epoch(), 3);
}

TEST(Fit, CanBeScrapedWhileItGoesOn) {
  const auto prometheus = std::make_shared<Prometheus>(PrometheusOptions{.port = 0});
  std::string answer;
  const auto look = LambdaCallback({.on_epoch_begin = [&](Training& training) {
    if (training.epoch() == 1) answer = testing::scrape(prometheus->port());
  }});
  auto model = compiled();
  const auto history = model.fit(batches(), silent({.epochs = 2, .callbacks = {prometheus, look}}));
  EXPECT_THAT(answer, ::testing::HasSubstr("lockstep_steps_total 3\n"));
  EXPECT_THAT(answer, ::testing::HasSubstr(str("lockstep_value{name=\"loss\"} ", exact_text(history.at("loss")[0]))));
}

TEST(Fit, NamesEveryMetricOfEveryOutput) {
  struct Two : Line {
    std::vector<torch::Tensor> forward(const torch::Tensor& x) { return {line(x), line(x) * 2}; }
  };
  auto loss = sparse_categorical_crossentropy({.from_logits = true});
  auto model =
      compiled<Two>({.optimizer = SGD(0.1), .loss = {loss, loss}, .output_metrics = {{"accuracy"}, {"accuracy", "accuracy"}}});
  const auto data = data::Dataset::from_tensor_slices({rows(8), labels(8), labels(8)}).batch(4);
  const auto logs = model.fit(data, silent()).logs[0];
  for (const char* name : {"output_0_accuracy", "output_1_accuracy", "output_1_accuracy_1"})
    EXPECT_TRUE(logs.find(name)) << name << " of " << show(logs);
}

}  // namespace
}  // namespace lockstep
