#include <torch/torch.h>

#include <map>

#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/lockstep.h"
#include "lockstep/observe/event_reader.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// Callbacks in a fit(): what they write is read back, and what they keep is compared with what was there.

namespace lockstep {
namespace {

using testing::content_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Key;
using testing::ScratchFolder;

struct Line : torch::nn::Module {
  Line() : line(register_module("line", torch::nn::Linear(2, 3))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
  torch::nn::Linear line;
};

// Three batches.
data::Dataset batches() {
  const auto x = (torch::arange(24, torch::kDouble).reshape({12, 2}) * 0.7).sin();
  return data::Dataset::from_tensor_slices({x, torch::arange(12, torch::kLong) % 3}).batch(4);
}

Model compiled(std::int64_t steps_per_update = 1) {
  torch::manual_seed(4);
  Model model(mirrored<Line>());
  model.compile({.optimizer = SGD(0.1),
                 .loss = sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .steps_per_update = steps_per_update});
  return model;
}

FitOptions silent(int epochs, Callbacks callbacks) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

struct Curve {
  std::vector<std::int64_t> steps = {};
  std::vector<double> values = {};
};

// The scalars of a folder with one event file, by tag; histograms count their values.
std::map<std::string, Curve> curves_in(const std::string& folder) {
  std::map<std::string, Curve> curves;
  const auto names = real_files().list(folder);
  EXPECT_EQ(names.size(), 1U) << folder;
  for (const auto& name : names)
    EXPECT_TRUE(read_events(folder + "/" + name, [&](const Event& event) {
      for (const auto& value : event.values) {
        if (!value.scalar && !value.histogram) continue;
        auto& curve = curves[value.tag];
        curve.steps.push_back(event.step);
        curve.values.push_back(value.scalar ? *value.scalar : 0.0);
      }
    }));
  return curves;
}

void expect_curve(const Curve& curve, const std::vector<double>& values, const std::string& what) {
  std::vector<std::int64_t> steps(values.size());
  for (std::size_t k = 0; k < steps.size(); ++k) steps[k] = static_cast<std::int64_t>(k);
  EXPECT_EQ(curve.steps, steps) << what;
  ASSERT_EQ(curve.values.size(), values.size()) << what;
  for (std::size_t k = 0; k < values.size(); ++k) EXPECT_EQ(curve.values[k], static_cast<float>(values[k])) << what;
}

TEST(TensorBoard, WritesTheLogsOfEveryEpoch) {
  const ScratchFolder folder;
  auto options = silent(2, {TensorBoard(folder / "logs", {.histogram_freq = 1})});
  options.validation_data = batches();
  const auto history = compiled().fit(batches(), options);
  const auto train = curves_in(folder / "logs/train"), validation = curves_in(folder / "logs/validation");
  EXPECT_THAT(train, IsSupersetOf({Key("epoch_loss"), Key("epoch_accuracy"), Key("epoch_learning_rate"),
                                   Key("epoch_steps_per_second"), Key("step_breakdown/worker0/compute"),
                                   Key("step_breakdown/worker0/steps"), Key("line.weight/histogram")}));
  EXPECT_THAT(validation, ElementsAre(Key("epoch_accuracy"), Key("epoch_loss")));
  for (const char* name : {"loss", "accuracy"}) {
    expect_curve(train.at(std::string("epoch_") + name), history.at(name), name);
    expect_curve(validation.at(std::string("epoch_") + name), history.at(std::string("val_") + name), name);
  }
  expect_curve(train.at("epoch_learning_rate"), {0.1, 0.1}, "learning rate");
  EXPECT_THAT(train.at("line.weight/histogram").steps, ElementsAre(0, 1));
  for (const auto& [tag, curve] : train) EXPECT_FALSE(tag.starts_with("batch_")) << tag;
}

TEST(TensorBoard, WritesRunningValuesEverySoManyUpdates) {
  const ScratchFolder folder;
  std::vector<double> losses;
  const auto look = LambdaCallback({.on_train_batch_end = [&](Training& training) {
    if (training.iterations() % 2 == 0) losses.push_back(static_cast<float>(training.logs().at("loss")));
  }});
  compiled().fit(batches(), silent(2, {look, TensorBoard(folder / "logs", {.update_freq = 2})}));
  const auto curve = curves_in(folder / "logs/train")["batch_loss"];
  EXPECT_THAT(curve.steps, ElementsAre(2, 4, 6));
  EXPECT_EQ(curve.values, losses);
  // Two batches make an update, and what is left at the end of an epoch does, after its last batch.
  compiled(2).fit(batches(), silent(2, {TensorBoard(folder / "slow", {.update_freq = 1})}));
  EXPECT_THAT(curves_in(folder / "slow/train")["batch_loss"].steps, ElementsAre(1, 3));
}

TEST(TraceSteps, ShowsCheckpointsAmongTheSpansOfTheStepsItWasAskedFor) {
  const ScratchFolder folder;
  compiled().fit(batches(), silent(2, {TraceSteps(folder / "trace.json", 1, 3),
                                       BackupAndRestore(folder / "backup", {.save_freq = 1, .async = false})}));
  const auto trace = content_of(folder / "trace.json");
  for (const char* name : {"forward", "backward", "optimizer", "next batch", "collect checkpoint", "write checkpoint"})
    EXPECT_THAT(trace, HasSubstr(std::string("\"name\":\"") + name + "\"")) << name;
  std::size_t steps = 0;
  for (auto at = trace.find("\"name\":\"backward\""); at != std::string::npos; at = trace.find("\"name\":\"backward\"", at + 1))
    ++steps;
  EXPECT_EQ(steps, 3U);
}

TEST(CSVLogger, HasTheValuesOfValidationThatComesEverySecondEpoch) {
  const ScratchFolder folder;
  auto options = silent(4, {CSVLogger(folder / "log.csv")});
  options.validation_data = batches();
  options.validation_freq = 2;
  const auto history = compiled().fit(batches(), options);
  const auto text = content_of(folder / "log.csv");
  EXPECT_THAT(text, ::testing::StartsWith("epoch,accuracy,loss,val_accuracy,val_loss\n0,"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\n2,[^,]+,[^,]+,,\n3,[^,]+,[^,]+,[^,]+,[^,]+\n$"));
  EXPECT_EQ(history.at("val_loss").size(), 2U);
}

// Gives every epoch's logs an "error", and keeps what the weights were at the end of each.
struct Scores {
  explicit Scores(std::vector<double> given) : scores(std::move(given)) {}

  LambdaCallback callback() {
    return LambdaCallback({.on_epoch_end = [this](Training& training, Logs& logs) {
      logs.set("error", scores.at(static_cast<std::size_t>(training.epoch())));
      weights.push_back(training.model().weights().tensors[0].second);
    }});
  }
  std::vector<double> scores;
  std::vector<torch::Tensor> weights = {};
};

TEST(EarlyStopping, BringsTheBestWeightsBack) {
  for (const bool is_wanted : {true, false}) {
    Scores scores({1.0, 0.5, 0.7, 0.9, 0.1});
    const auto stopping = std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "error", .patience = 2, .restore_best_weights = is_wanted});
    auto model = compiled();
    EXPECT_EQ(model.fit(batches(), silent(5, {scores.callback(), stopping})).epoch.size(), 4U);
    EXPECT_EQ(stopping->best_epoch(), 1);
    const auto last = model.weights().tensors[0].second;
    EXPECT_FALSE(torch::equal(scores.weights[1], scores.weights[3]));
    EXPECT_TRUE(torch::equal(last, scores.weights[is_wanted ? 1 : 3])) << is_wanted;
  }
  // Also when training was not stopped.
  Scores scores({0.5, 0.9});
  auto model = compiled();
  model.fit(batches(),
            silent(2, {scores.callback(), EarlyStopping({.monitor = "error", .patience = 9, .restore_best_weights = true})}));
  EXPECT_TRUE(torch::equal(model.weights().tensors[0].second, scores.weights[0]));
}

// So many epochs until it stops, of as many as there are scores.
std::size_t epochs_with(const std::vector<double>& given, EarlyStoppingOptions options) {
  Scores scores(given);
  options.monitor = "error";
  const auto epochs = static_cast<int>(given.size());
  return compiled().fit(batches(), silent(epochs, {scores.callback(), EarlyStopping(options)})).epoch.size();
}

TEST(EarlyStopping, WaitsUntilTheBaselineIsBeaten) {
  const std::vector<double> slow = {1.0, 0.9, 0.8, 0.85, 0.7};
  EXPECT_EQ(epochs_with(slow, {.patience = 2}), 5U);
  EXPECT_EQ(epochs_with(slow, {.patience = 2, .baseline = 0.5}), 4U);  // what improved did not count
  EXPECT_EQ(epochs_with(slow, {.patience = 2, .baseline = 0.95}), 5U);
}

TEST(EarlyStopping, LooksFromAnEpochOn) {
  const std::vector<double> worse = {0.1, 0.2, 1.0, 1.1, 1.2};
  EXPECT_EQ(epochs_with(worse, {.patience = 1}), 2U);
  EXPECT_EQ(epochs_with(worse, {.patience = 1, .start_from_epoch = 2}), 4U);
}

TEST(ModelCheckpoint, WritesWhatIsBetterThanTheThreshold) {
  const ScratchFolder folder;
  Scores scores({1.0, 0.7, 0.5, 0.55});
  const auto checkpoint = std::make_shared<ModelCheckpoint>(
      folder / "w-{epoch}.safetensors",
      ModelCheckpointOptions{.monitor = "error", .save_best_only = true, .initial_value_threshold = 0.6});
  compiled().fit(batches(), silent(4, {scores.callback(), checkpoint}));
  EXPECT_THAT(real_files().list(folder.path()), ElementsAre("w-3.safetensors"));
  EXPECT_EQ(checkpoint->best(), 0.5);
  EXPECT_TRUE(torch::equal(*CheckpointPart{load_weights(folder / "w-3.safetensors").tensors, {}}.find("line.weight"),
                           scores.weights[2]));
}

TEST(OneDeviceStrategy, FitsAsNoStrategyDoes) {
  const auto train = [](Model model, std::vector<torch::Tensor>& weights) {
    auto options = silent(3, {});
    options.validation_data = batches();
    const auto history = model.fit(batches(), options);
    for (const auto& [name, tensor] : model.weights().tensors) weights.push_back(tensor);
    return history;
  };
  std::vector<torch::Tensor> expected, found;
  const auto alone = train(compiled(), expected);
  OneDeviceStrategy strategy("CPU:0");
  const auto scope = strategy.scope();
  const auto history = train(compiled(), found);
  for (const char* name : {"loss", "accuracy", "val_loss", "val_accuracy"}) EXPECT_EQ(history.at(name), alone.at(name)) << name;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i])) << i;
}

}  // namespace
}  // namespace lockstep
