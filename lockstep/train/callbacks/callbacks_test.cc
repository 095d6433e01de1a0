#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/base/str.h"
#include "lockstep/observe/step_stats.h"
#include "lockstep/train/callbacks/backup_and_restore.h"
#include "lockstep/train/callbacks/csv_logger.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/file_name.h"
#include "lockstep/train/callbacks/lambda_callback.h"
#include "lockstep/train/callbacks/learning_rate_scheduler.h"
#include "lockstep/train/callbacks/model_checkpoint.h"
#include "lockstep/train/callbacks/progress_bar.h"
#include "lockstep/train/callbacks/prometheus.h"
#include "lockstep/train/callbacks/reduce_lr_on_plateau.h"
#include "lockstep/train/callbacks/tensor_board.h"
#include "lockstep/train/callbacks/terminate_on_nan.h"
#include "lockstep/train/callbacks/trace_steps.h"
#include "lockstep/train/callbacks/values.h"
#include "lockstep/train/metrics/metric_rule.h"
#include "tests/support/scrape.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"

// Callbacks without a model: what fit() would tell them is told by hand.

namespace lockstep {
namespace {

using testing::code_of;
using testing::content_of;
using testing::scrape;
using testing::ThrowsCode;

struct Told {
  double rate = 1.0;
  TrainingProgress progress = {.epochs = 10};
  Training training{nullptr,
                    progress,
                    {[] {
                       return Logs{{"loss", 0.5}};
                     },
                     [] {
                       return Logs{{"loss", 0.5}};
                     },
                     [this] { return rate; }, [this](double value) { rate = value; }}};

  // The end of the next epoch.
  Logs end(Callback& callback, Logs logs) {
    callback.on_epoch_end(training, logs);
    ++progress.epoch;
    return logs;
  }
};

TEST(Callbacks, EarlyStoppingWaitsForItsPatience) {
  Told told;
  EarlyStopping stopping({.patience = 2});
  stopping.on_train_begin(told.training);
  for (const double loss : {1.0, 0.8, 0.9, 0.85}) {
    EXPECT_FALSE(told.training.is_stopping()) << loss;
    told.end(stopping, {{"val_loss", loss}});
  }
  EXPECT_TRUE(told.training.is_stopping());
  EXPECT_EQ(stopping.stopped_epoch(), 3);
  EXPECT_EQ(stopping.best_epoch(), 1);
  EXPECT_EQ(code_of([] { EarlyStopping({.patience = -1}); }), ErrorCode::kInvalidArgument);
}

TEST(Callbacks, EarlyStoppingKnowsThatMoreAccuracyIsBetter) {
  Told told;
  EarlyStopping stopping({.monitor = "val_accuracy", .min_delta = 0.01, .patience = 1});
  stopping.on_train_begin(told.training);
  told.end(stopping, {{"val_accuracy", 0.5}});
  told.end(stopping, {{"val_accuracy", 0.6}});
  EXPECT_FALSE(told.training.is_stopping());
  told.end(stopping, {{"val_accuracy", 0.605}});
  EXPECT_TRUE(told.training.is_stopping());
}

TEST(Monitor, AsksTheMetricWhatIsBetter) {
  const auto is_more_better = [](const char* name) { return Monitor(name, MonitorMode::kAuto).is_better(1, 0); };
  for (const char* name : {"val_cosine_similarity", "pearson_correlation", "val_concordance_correlation", "val_auc",
                           "val_weighted_output_1_r2_score", "output_12_cosine_similarity", "val_cosine_similarity_2",
                           "val_accuracy", "my_accuracy", "val_true_positives"})
    EXPECT_TRUE(is_more_better(name)) << name;
  for (const char* name :
       {"loss", "val_loss", "output_0_loss", "val_mean_squared_error", "val_false_positives", "mean", "val_"})
    EXPECT_FALSE(is_more_better(name)) << name;
}

// A metric may have any name.
TEST(Monitor, AsksTheMetricsThatWereCompiledFirst) {
  TrainingProgress progress;
  const Training training(nullptr, progress, {.direction = [](const std::string& name) {
                            return name == "val_quality" ? metrics::Direction::kUp : metrics::Direction::kUnknown;
                          }});
  Monitor quality("val_quality", MonitorMode::kAuto), least("val_quality", MonitorMode::kMin), loss("loss", MonitorMode::kAuto);
  EXPECT_FALSE(quality.is_better(1, 0));
  for (auto* one : {&quality, &least, &loss}) one->ask(training);
  EXPECT_TRUE(quality.is_better(1, 0));
  EXPECT_FALSE(least.is_better(1, 0));
  EXPECT_FALSE(loss.is_better(1, 0));
}

TEST(FileName, WritesValuesAsItsFormatsSay) {
  const Logs logs = {{"epoch", 7}, {"val_loss", 0.04567}, {"gain", -1.5}, {"huge", 1e300}};
  for (const auto& [pattern, name] : {std::pair("w-{epoch:03d}.x", "w-007.x"),
                                      {"{epoch}-{epoch:4}|", "7-   7|"},
                                      {"{val_loss:.3f}", "0.046"},
                                      {"{val_loss:8.3f}{val_loss:07.2f}", "   0.0460000.05"},
                                      {"{val_loss:.1e} {val_loss:.2g} {val_loss}", "4.6e-02 0.046 0.04567"},
                                      {"{gain:06.2f} {gain}", "-01.50 -1.5"}})
    EXPECT_EQ(internal::file_name(pattern, logs), name);
  EXPECT_EQ(internal::file_name("{huge:.2f}", logs).size(), 304U);
  for (const char* pattern : {"{epoch:x}", "{val_loss:.f}", "{val_loss:123.1f}", "{other}"})
    EXPECT_EQ(code_of([&] { internal::file_name(pattern, logs); }), ErrorCode::kInvalidArgument) << pattern;
}

TEST(Callbacks, RememberOverARestart) {
  Told told;
  EarlyStopping stopping({.patience = 3}), other({.patience = 3});
  stopping.on_train_begin(told.training);
  for (const double loss : {0.1, 0.2, 0.3}) told.end(stopping, {{"val_loss", loss}});
  other.restore(stopping.save());
  other.on_train_begin(told.training);
  told.end(other, {{"val_loss", 0.2}});
  EXPECT_TRUE(told.training.is_stopping());
  ReduceLROnPlateau plateau;
  EXPECT_EQ(code_of([&] { plateau.restore({}); }), ErrorCode::kDataLoss);
  CheckpointPart part;
  internal::put(part, "tenth", 0.1);
  EXPECT_EQ(part.values["tenth"], "0.1");  // the shortest text that is this number, in every locale
  EXPECT_EQ(internal::get(part, "tenth"), 0.1);
}

TEST(Callbacks, EarlyStoppingKeepsACopyOfWhatItIsGivenBack) {
  auto part = EarlyStopping().save();
  const auto in_file = at::ones({2});
  part.tensors.emplace_back("w", in_file);
  EarlyStopping stopping;
  stopping.restore(part);
  in_file.zero_();
  EXPECT_TRUE(at::equal(stopping.save().tensors.at(0).second, at::ones({2})));
}

TEST(Callbacks, ReduceLROnPlateauReducesAndCoolsDown) {
  Told told;
  ReduceLROnPlateau plateau({.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.2});
  plateau.on_train_begin(told.training);
  std::vector<double> rates;
  for (int epoch = 0; epoch < 9; ++epoch) {
    told.end(plateau, {{"val_loss", 1.0}});
    rates.push_back(told.rate);
  }
  EXPECT_THAT(rates, ::testing::ElementsAre(1, 1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2));
  EXPECT_EQ(told.end(plateau, {{"val_loss", 0.5}}).at("learning_rate"), 0.2);
  EXPECT_EQ(code_of([] { ReduceLROnPlateau({.factor = 1}); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([] { ReduceLROnPlateau({.patience = -3}); }, ThrowsCode(ErrorCode::kInvalidArgument, "patience is -3"));
}

TEST(Callbacks, LearningRateSchedulerSetsTheRateOfAnEpoch) {
  Told told;
  LearningRateScheduler scheduler([](int epoch, double rate) { return epoch < 2 ? rate : rate * 0.1; });
  told.progress.epoch = 1;
  scheduler.on_epoch_begin(told.training);
  EXPECT_EQ(told.rate, 1.0);
  told.progress.epoch = 2;
  scheduler.on_epoch_begin(told.training);
  EXPECT_DOUBLE_EQ(told.rate, 0.1);
}

TEST(Callbacks, LearningRateSchedulerSetsARateOnceWhenAnEpochGoesOnInItsMiddle) {
  const auto halve = [](int, double rate) { return rate / 2; };
  Told told;
  LearningRateScheduler scheduler(halve);
  told.progress.epoch = 3;
  scheduler.on_epoch_begin(told.training);
  EXPECT_EQ(told.rate, 0.5);
  LearningRateScheduler resumed(halve);
  resumed.restore(scheduler.save());
  resumed.on_epoch_begin(told.training);
  EXPECT_EQ(told.rate, 0.5);
  told.progress.epoch = 4;
  resumed.on_epoch_begin(told.training);
  EXPECT_EQ(told.rate, 0.25);
  // Saved between two epochs: the next one has no rate yet.
  LearningRateScheduler later(halve);
  later.restore(resumed.save());
  told.progress.epoch = 5;
  later.on_epoch_begin(told.training);
  EXPECT_EQ(told.rate, 0.125);
  later.on_epoch_begin(told.training);  // another fit() over the same epochs
  EXPECT_EQ(told.rate, 0.0625);
}

TEST(Callbacks, CSVLoggerWritesALineAnEpochAndGoesOn) {
  const testing::ScratchFolder folder;
  const auto file = folder / "log.csv";
  Told told;
  CSVLogger logger(file);
  logger.on_train_begin(told.training);
  told.end(logger, {{"loss", 0.5}, {"accuracy", 0.75}});
  told.end(logger, {{"loss", 1.0 / 3}});
  EXPECT_EQ(content_of(file), "epoch,accuracy,loss\n0,0.75,0.5\n1,,0.3333333333333333\n");
  CSVLogger second(file);
  EXPECT_THAT([&] { second.on_train_begin(told.training); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "log.csv' is written by process"));
  logger.on_train_end(told.training);
  // Resumed at epoch 1: its line is written anew.
  Told again;
  again.progress.epoch = 1;
  CSVLogger resumed(file);
  resumed.on_train_begin(again.training);
  again.end(resumed, {{"loss", 0.125}, {"accuracy", 1}});
  EXPECT_EQ(content_of(file), "epoch,accuracy,loss\n0,0.75,0.5\n1,1,0.125\n");
  Told other;
  other.progress.is_chief = false;
  CSVLogger silent(file);
  silent.on_train_begin(other.training);
  EXPECT_EQ(content_of(file), "epoch,accuracy,loss\n0,0.75,0.5\n1,1,0.125\n");
  CSVLogger nowhere(folder / "none/log.csv");
  EXPECT_EQ(code_of([&] { nowhere.on_train_begin(told.training); }), ErrorCode::kFailedPrecondition);
}

TEST(Callbacks, CSVLoggerKnowsTheColumnsOfValidationBeforeItsFirst) {
  const testing::ScratchFolder folder;
  Told told;
  told.progress.has_validation = true;
  CSVLogger logger(folder / "log.csv");
  logger.on_train_begin(told.training);
  told.end(logger, {{"loss", 0.5}, {"seconds", 2}});
  told.end(logger, {{"loss", 0.25}, {"seconds", 3}, {"val_loss", 0.75}});
  EXPECT_EQ(content_of(folder / "log.csv"), "epoch,loss,seconds,val_loss\n0,0.5,2,\n1,0.25,3,0.75\n");
}

// What is shown at the end of an epoch whose workers' times are these.
std::string shown_with(const StepStats& stats, Verbose verbose, bool is_chief) {
  TrainingProgress progress{.is_chief = is_chief};
  Training training(nullptr, progress, {.logs = [] { return Logs(); }, .step_stats = &stats});
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  ProgressBar bar(verbose, out);
  bar.on_epoch_begin(training);
  Logs logs;
  bar.on_epoch_end(training, logs);
  std::fclose(out);
  std::string shown(text, size);
  std::free(text);
  return shown;
}

TEST(Callbacks, ProgressBarShowsWhereTheTimeOfEveryWorkerWent) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::Not;
  StepStats two(2), one(1);
  const std::vector<StepTimes> times = {{{0.001, 0.1, 0.034, 0, 0}}, {{0.035, 0.1, 0, 0, 0}}};
  for (int step = 0; step < 10; ++step) {
    two.add(times);
    one.add(std::span(times).first(1));
  }
  for (const auto verbose : {Verbose::kBar, Verbose::kLine})
    EXPECT_THAT(shown_with(two, verbose, true),
                AllOf(HasSubstr("each step"), HasSubstr("(10 steps)"), HasSubstr("\nworker 0"), HasSubstr("\nworker 1"),
                      HasSubstr("35 ms"), HasSubstr("worker 1 was waited for in 100 % of steps, 34 ms each: input\n")));
  EXPECT_THAT(shown_with(one, Verbose::kLine, true), Not(HasSubstr("worker")));
  EXPECT_THAT(shown_with(StepStats(2), Verbose::kLine, true), Not(HasSubstr("worker")));
  EXPECT_EQ(shown_with(two, Verbose::kLine, false), "");
  EXPECT_EQ(shown_with(two, Verbose::kSilent, true), "");
}

TEST(Callbacks, ModelCheckpointTakesOnlyPathsThatMeanSomething) {
  for (const char* path : {"model.pt", "a/model.pth", "w.h5", "best.keras", "w.safetensor"})
    EXPECT_THAT([&] { ModelCheckpoint checkpoint(path); }, ThrowsCode(ErrorCode::kInvalidArgument, path, ".safetensors"))
        << path;
  EXPECT_THAT([] { ModelCheckpoint checkpoint("c-{epoch}"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "c-{epoch}", "names values"));
  for (const char* path : {"runs/v1.2", "w-{epoch}.safetensors", "{epoch}/w.safetensors"}) ModelCheckpoint checkpoint(path);
}

TEST(Callbacks, FilesThatCannotBeWrittenAreToldBeforeTheFirstStep) {
  const testing::ScratchFolder folder;
  const auto nowhere = folder.write("none", "a file") + "/file";
  Told told;
  ModelCheckpoint weights(nowhere + ".safetensors");
  EXPECT_THAT([&] { weights.on_train_begin(told.training); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "none' cannot be made"));
  TraceSteps trace(nowhere);
  EXPECT_THAT([&] { trace.on_train_begin(told.training); }, ThrowsCode(ErrorCode::kFailedPrecondition, "none' cannot be made"));
  TraceSteps at_folder(folder.path());
  EXPECT_THAT([&] { at_folder.on_train_begin(told.training); }, ThrowsCode(ErrorCode::kFailedPrecondition, "is a folder"));
  TraceSteps new_folder(folder / "a/b/trace.json");
  new_folder.on_train_begin(told.training);
  new_folder.on_train_end(told.training);
  told.progress.is_chief = false;
  trace.on_train_begin(told.training);
}

TEST(Callbacks, OneTrainingAtATimeWritesAFile) {
  const testing::ScratchFolder folder;
  Told told;
  ModelCheckpoint first(folder / "w-{epoch}.safetensors"), second(folder / "w-{epoch}.safetensors");
  first.on_train_begin(told.training);
  EXPECT_THAT([&] { second.on_train_begin(told.training); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "is written by process", "a file of its own"));
  first.on_train_end(told.training);
  second.on_train_begin(told.training);
  second.on_train_failed(told.training);
  EXPECT_EQ(content_of(folder / ".w-{epoch}.safetensors.lock"), "");  // nothing is left
  first.on_train_begin(told.training);
  first.on_train_end(told.training);
}

TEST(Callbacks, ProgressBarLooksAsKerasDoes) {
  Told told;
  told.progress.steps = 4;
  for (const auto verbose : {Verbose::kBar, Verbose::kLine, Verbose::kSilent}) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* out = open_memstream(&text, &size);
    ProgressBar bar(verbose, out);
    told.progress.step = 0;
    bar.on_epoch_begin(told.training);
    for (int step = 1; step <= 4; ++step) {
      told.progress.step = step;
      bar.on_train_batch_end(told.training);
    }
    Logs logs = {{"loss", 0.25}, {"val_loss", 0.0001}};
    bar.on_epoch_end(told.training, logs);
    std::fclose(out);
    const std::string shown(text, size);
    std::free(text);
    if (verbose == Verbose::kSilent) {
      EXPECT_EQ(shown, "");
    }
    if (verbose == Verbose::kBar) {
      EXPECT_THAT(shown, ::testing::StartsWith("Epoch 1/10\n"));
      EXPECT_THAT(shown, ::testing::HasSubstr("4/4 ━━━━━━━━━━━━━━━━━━━━ 0s"));
    }
    if (verbose == Verbose::kLine) {
      EXPECT_THAT(shown, ::testing::StartsWith("Epoch 1/10 - 4/4 - 0s - "));
    }
    if (verbose != Verbose::kSilent) {
      EXPECT_THAT(shown, ::testing::EndsWith(" - loss: 0.2500 - val_loss: 1.0000e-04\n"));
    }
  }
}

TEST(Callbacks, ListsTakeAnyCallback) {
  const auto shared = std::make_shared<EarlyStopping>();
  const Callbacks list = {shared, LambdaCallback({}), CSVLogger("x.csv")};
  EXPECT_EQ(list.size(), 3U);
  EXPECT_THAT(
      [&] {
        (Callbacks{shared, std::shared_ptr<EarlyStopping>()});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "number 1 of the list"));
}

// Who is told last saves what all the others know.
TEST(Callbacks, ThoseThatSaveTheTrainingComeLastAndTheOneThatBringsItBackAfterThem) {
  const auto backup = std::make_shared<BackupAndRestore>("backup");
  const auto folder = std::make_shared<ModelCheckpoint>("folder");
  const auto file = std::make_shared<ModelCheckpoint>("best.safetensors");
  const auto stopping = std::make_shared<EarlyStopping>();
  const auto check = std::make_shared<TerminateOnNaN>();
  for (auto list : {Callbacks{backup, folder, file, stopping, check}, Callbacks{folder, file, backup, check, stopping}}) {
    list.put_in_order();
    EXPECT_EQ(std::vector(list.begin(), list.end()),
              (std::vector<std::shared_ptr<Callback>>{check, file, stopping, folder, backup}));
  }
}

TEST(Callbacks, RefuseNumbersByTheirValue) {
  EXPECT_THAT([] { BackupAndRestore("x", {.save_freq = -2}); }, ThrowsCode(ErrorCode::kInvalidArgument, "save_freq is -2"));
  EXPECT_THAT([] { ModelCheckpoint("w-{epoch:2x}.safetensors"); }, ThrowsCode(ErrorCode::kInvalidArgument, "'2x'"));
  EXPECT_THAT([] { ModelCheckpoint("x", {.save_freq = -2}); }, ThrowsCode(ErrorCode::kInvalidArgument, "save_freq is -2"));
  EXPECT_THAT([] { TensorBoard("x", {.histogram_freq = -1}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "histogram_freq is -1"));
  EXPECT_THAT([] { TraceSteps("x", 3, 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "the first step 3, and 0 steps"));
}

TEST(Logs, KeepTheirOrderAndSayWhatThereIs) {
  Logs logs = {{"loss", 1}};
  logs.add({{"loss", 2}}, "val_");
  logs.set("loss", 3);
  EXPECT_EQ(show(logs), "loss: 3.0000 - val_loss: 2.0000");
  EXPECT_EQ(code_of([&] { logs.at("los"); }), ErrorCode::kInvalidArgument);
  History history{{0, 1}, {logs, {{"loss", 5}}}};
  EXPECT_THAT(history.at("loss"), ::testing::ElementsAre(3, 5));
  EXPECT_THAT(history.at("val_loss"), ::testing::ElementsAre(2));
  EXPECT_EQ(code_of([&] { history.at("x"); }), ErrorCode::kInvalidArgument);
}

TEST(Callbacks, PrometheusIsToldHowTrainingGoes) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  Told told;
  Prometheus prometheus({.port = 0, .every = std::chrono::milliseconds(0)});
  EXPECT_EQ(prometheus.port(), 0);
  prometheus.on_train_begin(told.training);
  prometheus.on_epoch_begin(told.training);
  for (const int step : {1, 2}) {
    told.progress.step = step;
    told.progress.examples = 100 * step;
    prometheus.on_train_batch_end(told.training);
  }
  told.rate = 0.25;
  EXPECT_THAT(scrape(prometheus.port()),
              AllOf(HasSubstr("lockstep_value{name=\"loss\"} 0.5\n"), HasSubstr("lockstep_steps_total 2\n"),
                    HasSubstr("lockstep_step 2\n"), HasSubstr("lockstep_learning_rate 1\n"),
                    HasSubstr("lockstep_examples_per_second ")));
  Logs logs{{"loss", 0.125}, {"val a/b", 3}};
  prometheus.on_epoch_end(told.training, logs);
  EXPECT_THAT(scrape(prometheus.port()),
              AllOf(HasSubstr("lockstep_value{name=\"loss\"} 0.125\n"), HasSubstr("lockstep_value{name=\"val a/b\"} 3\n"),
                    HasSubstr("lockstep_learning_rate 0.25\n")));

  Prometheus second({.port = prometheus.port()});
  second.on_train_begin(told.training);
  ASSERT_TRUE(told.training.failure());
  EXPECT_EQ(told.training.failure()->code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(told.training.failure()->message(), HasSubstr(std::to_string(prometheus.port())));
  prometheus.on_train_end(told.training);
  EXPECT_EQ(prometheus.port(), 0);
  told.progress.is_chief = false;
  second.on_train_begin(told.training);
  EXPECT_EQ(second.port(), 0);
  EXPECT_EQ(code_of([] { Prometheus({.port = 70000}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
