#include <torch/torch.h>

#include <cmath>

#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// What a model is told that cannot be meant: it says so by name, before anything has changed.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ThrowsCode;

struct Line : torch::nn::Module {
  Line() : line(register_module("line", torch::nn::Linear(2, 3))) { to(torch::kDouble); }
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
  torch::nn::Linear line;
};
struct Two : Line {
  std::vector<torch::Tensor> forward(const torch::Tensor& x) { return {line(x), line(x) * 2}; }
};

torch::Tensor rows(std::int64_t count) { return (torch::arange(count * 2, torch::kDouble).reshape({count, 2}) * 0.7).sin(); }
torch::Tensor labels(std::int64_t count) { return torch::arange(count, torch::kLong) % 3; }

template <typename... T>
data::Dataset batches_of(const T&... tensors) {
  return data::Dataset::from_tensor_slices({tensors...}).batch(4);
}
data::Dataset batches() { return batches_of(rows(12), labels(12)); }

Loss crossentropy() { return sparse_categorical_crossentropy({.from_logits = true}); }
CompileOptions options_of() { return {.optimizer = SGD(0.1), .loss = crossentropy(), .metrics = {"accuracy"}}; }

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

TEST(Fit, LibTorchsErrorsNameTheBatch) {
  auto model = compiled();
  const auto data = batches_of(torch::zeros({8, 5}, torch::kDouble), labels(8));
  const auto says = [](const char* doing) {
    return ::testing::Throws<c10::Error>(
        ::testing::Property(&c10::Error::what_without_backtrace, ::testing::AllOf(HasSubstr(doing), HasSubstr("[4, 5]"))));
  };
  EXPECT_THAT([&] { model.fit(data, silent()); }, says("in a training step"));
  EXPECT_THAT([&] { model.evaluate(data, {.verbose = Verbose::kSilent}); }, says("in a step of evaluation"));
}

TEST(ClassWeight, IsRefusedForAModelWithSeveralOutputs) {
  auto model = compiled<Two>({.optimizer = SGD(0.1), .loss = {crossentropy(), crossentropy()}});
  const auto data = batches_of(rows(8), labels(8), labels(8));
  EXPECT_THAT(
      [&] {
        model.fit(data, silent({.class_weight = {{0, 5.0}}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "class_weight", "2 outputs"));
  EXPECT_EQ(model.iterations(), 0);
}

TEST(ClassWeight, MustBeFinite) {
  auto model = compiled();
  for (const double bad : {std::nan(""), HUGE_VAL})
    EXPECT_THAT(
        [&] {
          model.fit(batches(), silent({.class_weight = {{1, 2.0}, {2, bad}}}));
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "class_weight", "class 2"));
  EXPECT_EQ(model.iterations(), 0);
}

TEST(ClassWeight, TakesOneHotTargetsOfAnyElementType) {
  std::vector<double> losses;
  const auto classes = labels(12).slice(0, 0, 12);
  const auto weighed = silent({.class_weight = {{0, 5.0}, {2, 0.5}}});
  losses.push_back(compiled().fit(batches(), weighed).at("loss")[0]);
  for (const auto dtype : {torch::kLong, torch::kInt, torch::kFloat, torch::kDouble}) {
    auto model = compiled({.optimizer = SGD(0.1), .loss = categorical_crossentropy({.from_logits = true})});
    losses.push_back(model.fit(batches_of(rows(12), torch::one_hot(classes, 3).to(dtype)), weighed).at("loss")[0]);
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses[0], 1e-6);
}

TEST(ClassWeight, IsRefusedForTargetsThatAreNoClasses) {
  const auto weighed = silent({.class_weight = {{0, 5.0}}});
  for (const auto& targets : {torch::full({8, 1}, 0.7, torch::kDouble), torch::full({8, 3}, 0.7, torch::kDouble),
                              torch::full({8, 3}, 1, torch::kLong)}) {
    auto model = compiled({.optimizer = SGD(0.1), .loss = "mse"});
    EXPECT_THAT([&] { model.fit(batches_of(rows(8), targets), weighed); },
                ThrowsCode(ErrorCode::kInvalidArgument, "class_weight", "no classes"));
  }
}

TEST(SampleWeights, MustBeFinite) {
  auto model = compiled();
  for (const double bad : {std::nan(""), -HUGE_VAL}) {
    auto weights = torch::ones({4}, torch::kDouble);
    weights[2] = bad;
    EXPECT_THAT(
        [&] {
          model.train_on_batch({rows(4), labels(4), weights});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "sample weight in row 2"));
    EXPECT_THAT(
        [&] {
          model.test_on_batch({rows(4), labels(4), weights});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "sample weight in row 2"));
  }
  EXPECT_EQ(model.iterations(), 0);
  EXPECT_TRUE(std::isfinite(model.train_on_batch({rows(4), labels(4), torch::full({4}, -1.0)}).at("loss")));
}

TEST(Metrics, OfOneObjectCountForEachOutputByItself) {
  const Metric shared("mae"), other("mae");
  const auto data = batches_of(rows(8), torch::zeros({8, 3}, torch::kDouble), torch::zeros({8, 3}, torch::kDouble));
  const CompileOptions once{.optimizer = SGD(0.1), .loss = {"mse", "mse"}, .output_metrics = {{shared}, {shared}}};
  const CompileOptions apart{.optimizer = SGD(0.1), .loss = {"mse", "mse"}, .output_metrics = {{"mae"}, {other}}};
  const auto found = compiled<Two>(once).fit(data, silent()).logs[0];
  const auto expected = compiled<Two>(apart).fit(data, silent()).logs[0];
  EXPECT_NEAR(found.at("output_1_mae"), 2 * found.at("output_0_mae"), 1e-12);
  for (const char* name : {"output_0_mae", "output_1_mae"}) EXPECT_EQ(found.at(name), expected.at(name)) << name;
  EXPECT_EQ(shared.result().item<double>(), found.at("output_0_mae"));  // the user's own is still looked at
}

TEST(TrainOnBatch, IsRefusedInACallbackOfFit) {
  auto model = compiled();
  const auto train = LambdaCallback({.on_train_batch_end = [](Training& training) {
    training.model().train_on_batch({rows(4), labels(4)});
  }});
  EXPECT_THAT([&] { model.fit(batches(), silent({.callbacks = {train}})); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "train_on_batch", "fit() of this model is under way"));
  EXPECT_EQ(model.iterations(), 1);
  model.train_on_batch({rows(4), labels(4)});
  EXPECT_EQ(model.iterations(), 2);
}

TEST(TrainOnBatch, RefusesDifferentNumbersOfRows) {
  auto model = compiled();
  EXPECT_THAT(
      [&] {
        model.train_on_batch({rows(4), labels(3)});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "number of rows", "has 4", "has 3"));
  EXPECT_THAT(
      [&] {
        model.test_on_batch({rows(4), labels(4), torch::ones({5})});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "number of rows", "has 5"));
}

TEST(Compile, RefusesTwoNumbersOfBatchesForOneUpdate) {
  auto options = options_of();
  options.steps_per_update = 2;
  options.optimizer = SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 3});
  EXPECT_THAT([&] { compiled(options); },
              ThrowsCode(ErrorCode::kInvalidArgument, "steps_per_update is 2", "gradient_accumulation_steps 3"));
  options.steps_per_update = 1;
  auto model = compiled(options);
  model.fit(batches(), silent());
  EXPECT_EQ(model.iterations(), 1);
}

TEST(Validation, StepsNeedDataAndWarnWhereThereIsLess) {
  auto model = compiled();
  EXPECT_THAT([&] { model.fit(batches(), silent({.validation_steps = 2})); },
              ThrowsCode(ErrorCode::kInvalidArgument, "validation_steps is 2", "no validation_data"));
  const LogCapture log;
  const auto history = model.fit(batches(), silent({.epochs = 2, .validation_data = batches(), .validation_steps = 77}));
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("ended after 3 of 77 steps")));
  EXPECT_EQ(history.at("val_loss").size(), 2U);
  model.evaluate(batches(), {.steps = 78});
  model.evaluate(batches(), {.steps = 3});
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("3 of 77"), HasSubstr("3 of 78")));
}

// A training that ended after its second step, of three.
void train_and_crash(const std::string& folder, const CompileOptions& options) {
  const auto crash = LambdaCallback({.on_train_batch_end = [](Training& training) {
    if (training.iterations() == 2) throw Error(ErrorCode::kCancelled, "crash");
  }});
  EXPECT_THAT(
      [&] {
        compiled(options).fit(batches(),
                              silent({.callbacks = {BackupAndRestore(folder, {.save_freq = 1, .async = false}), crash}}));
      },
      ThrowsCode(ErrorCode::kCancelled));
}

TEST(Resuming, IsRefusedWithOtherMetricsInTheMiddleOfAnEpoch) {
  const testing::ScratchFolder folder;
  train_and_crash(folder / "backup", options_of());
  const auto go_on = [&](Model& model) {
    return model.fit(batches(), silent({.callbacks = {BackupAndRestore(folder / "backup", {.delete_checkpoint = false})}}));
  };
  for (const std::vector<Metric>& metrics :
       {std::vector<Metric>{"sparse_categorical_crossentropy"}, {"accuracy", "sparse_categorical_crossentropy"}, {}}) {
    auto options = options_of();
    options.metrics = metrics;
    auto model = compiled(options);
    const auto before = model.weights();
    EXPECT_THAT([&] { go_on(model); }, ThrowsCode(ErrorCode::kInvalidArgument, "metrics: [accuracy] were saved",
                                                  metrics.empty() ? "compiled with []" : "sparse_categorical_crossentropy]"));
    for (const auto& [name, tensor] : model.weights().tensors) EXPECT_TRUE(torch::equal(tensor, *before.find(name))) << name;
    EXPECT_EQ(model.iterations(), 0);
  }
  auto renamed = options_of();  // the same name, another rule
  renamed.metrics = {Metric("mae").renamed("accuracy")};
  auto other = compiled(renamed);
  EXPECT_THAT([&] { go_on(other); }, ThrowsCode(ErrorCode::kInvalidArgument, "metrics: [accuracy ("));
  auto same = compiled();
  const auto history = go_on(same);
  const auto whole = compiled().fit(batches(), silent());
  EXPECT_EQ(history.at("accuracy"), whole.at("accuracy"));
  EXPECT_EQ(history.at("loss"), whole.at("loss"));
}

}  // namespace
}  // namespace lockstep
