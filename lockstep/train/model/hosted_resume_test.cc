#include <torch/torch.h>

#include <csignal>
#include <fstream>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/lockstep.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Trainings on workers that are saved, interrupted and gone on with: see Note [resuming a fit on workers].

namespace lockstep {
namespace {

using testing::code_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ScratchFolder;
using testing::ServerCluster;

struct Words : torch::nn::Module {
  Words()
      : table(register_module("table", HostedEmbedding(HostedEmbeddingOptions{.rows = 40, .columns = 4, .seed = 3}))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        top(register_module("top", torch::nn::Linear(4, 1))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return top(norm(table(ids).mean(1))); }
  HostedEmbedding table;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear top;
};

data::Dataset rows() {
  const auto ids = (torch::arange(264, torch::kLong).reshape({88, 3}) * 7) % 40;
  return data::Dataset::from_tensor_slices({ids, ids.sum(1).to(torch::kFloat).sin()});
}
data::Dataset batches() { return rows().batch(8); }
const auto kInOrder = [] { return batches(); };
const auto kShuffled = [] { return rows().shuffle(88, 5).batch(8); };  // in another order in each pass

constexpr std::int64_t kSteps = 7;

struct Crash : std::runtime_error {
  Crash() : runtime_error("crash") {}
};

// Ends the program's part of a training when it hears of so many updates.
struct Crasher : Callback {
  Crasher(std::int64_t when, bool told) : at(when), is_told(told) {}
  bool can_be_late() const override { return true; }
  void on_train_batch_end(Training& training) override {
    if (training.iterations() != at) return;
    if (!is_told) throw Crash();
    std::raise(SIGTERM);
  }
  std::int64_t at;
  bool is_told;  // by SIGTERM
};

struct Plan {
  std::vector<std::int64_t> crash_at = {};
  std::int64_t save_freq = 0;
  std::int64_t steps_per_epoch = kSteps;
  bool is_told = false;
  bool are_servers_new = false;  // after each crash; else only the coordinator is
  int replication = 1;
};

struct Result {
  CheckpointPart weights;
  std::string logs;
  std::int64_t iterations = 0;
};

// 4 epochs, whatever comes between.
Result train(Plan plan, const std::string& folder) {
  auto cluster = std::make_unique<ServerCluster>(2, 1);
  for (;; plan.crash_at.erase(plan.crash_at.begin())) {
    if (plan.are_servers_new) cluster = nullptr, cluster = std::make_unique<ServerCluster>(2, 1);
    ParameterServerStrategy strategy(cluster->chief(), FixedShardsPartitioner(2), {.replication = plan.replication});
    torch::manual_seed(1);
    Model model(strategy.hosted<Words>());
    model.compile({.optimizer = Adam(0.01), .loss = "mse", .metrics = {"mae"}});
    const auto crash_at = plan.crash_at.empty() ? -1 : plan.crash_at[0];
    try {
      const auto history =
          model.fit(kShuffled,
                    {.epochs = 4,
                     .steps_per_epoch = plan.steps_per_epoch,
                     .callbacks = {LearningRateScheduler([](int epoch, double rate) { return epoch == 0 ? rate : rate * 0.5; }),
                                   BackupAndRestore(folder, {.save_freq = plan.save_freq, .exit_fn = [] {}}),
                                   Crasher(crash_at, plan.is_told)},
                     .verbose = Verbose::kSilent});
      return {model.weights(), show(history.logs.back()), model.iterations()};
    } catch (const Crash&) {
      EXPECT_FALSE(plan.is_told);
    } catch (const Error& error) {
      EXPECT_TRUE(plan.is_told && error.code() == ErrorCode::kCancelled) << error.what();
    }
  }
}

void expect_same(const Result& a, const Result& b, const std::string& what) {
  ASSERT_EQ(a.weights.tensors.size(), b.weights.tensors.size());
  for (const auto& [name, tensor] : a.weights.tensors)
    EXPECT_TRUE(torch::equal(tensor, *b.weights.find(name))) << what << ", " << name;
  EXPECT_EQ(a.logs, b.logs) << what;
  EXPECT_EQ(a.iterations, b.iterations) << what;
}

TEST(HostedResume, AnInterruptedFitEndsWithTheSameBits) {
  const ScratchFolder folder;
  const auto wanted = train({}, folder / "backup");
  EXPECT_EQ(wanted.iterations, 4 * kSteps);
  EXPECT_NE(wanted.weights.find("table.weight"), nullptr);
  for (const std::int64_t save_freq : {0, 4})
    expect_same(train({.crash_at = {3, 14, 20}, .save_freq = save_freq}, folder / "backup"), wanted,
                str("save_freq ", save_freq));
  expect_same(train({.crash_at = {10}, .save_freq = 1, .are_servers_new = true}, folder / "backup"), wanted,
              "save_freq 1 and new servers");
}

TEST(HostedResume, SoDoesOneWhoseVariablesAreOnTwoServers) {
  const ScratchFolder folder;
  const auto wanted = train({}, folder / "backup");
  for (const bool are_servers_new : {false, true})
    expect_same(
        train({.crash_at = {3, 14}, .save_freq = 4, .are_servers_new = are_servers_new, .replication = 2}, folder / "backup"),
        wanted, str("new servers: ", are_servers_new));
}

TEST(HostedResume, SoDoesOneWhoseEpochsArePasses) {
  const ScratchFolder folder;
  const auto wanted = train({.steps_per_epoch = kUntilDataEnds}, folder / "backup");
  EXPECT_EQ(wanted.iterations, 4 * 11);
  for (const std::int64_t save_freq : {0, 4})
    expect_same(train({.crash_at = {5, 22}, .save_freq = save_freq, .steps_per_epoch = kUntilDataEnds}, folder / "backup"),
                wanted, str("save_freq ", save_freq));
}

TEST(HostedResume, ACoordinatorThatIsToldToGoKeepsItsTraining) {
  const ScratchFolder folder;
  const auto wanted = train({}, folder / "backup");
  expect_same(train({.crash_at = {16}, .is_told = true, .are_servers_new = true}, folder / "backup"), wanted, "told to go");
}

// A job whose training can be ended and begun again.
struct Job {
  Job() : cluster(2, 1), strategy(cluster.chief()), model(seeded()) { model.compile({.optimizer = SGD(0.05), .loss = "mse"}); }
  HostedModel<Words> seeded() {
    torch::manual_seed(1);
    return strategy.hosted<Words>();
  }
  void fit(const Callbacks& callbacks, int epochs = 4) {
    model.fit(kInOrder, {.epochs = epochs, .steps_per_epoch = kSteps, .callbacks = callbacks, .verbose = Verbose::kSilent});
  }
  ServerCluster cluster;
  ParameterServerStrategy strategy;
  Model model;
};

TEST(HostedResume, ADamagedCheckpointIsPassedOver) {
  const ScratchFolder folder;
  Job whole;
  whole.fit({});
  Job lost;
  EXPECT_THROW(lost.fit({BackupAndRestore(folder / "b"), Crasher(3 * kSteps + 1, false)}), Crash);
  const auto manifest = read_manifest(folder / "b/ckpt-4");
  EXPECT_EQ(manifest.info.epoch, 2);
  EXPECT_EQ(manifest.info.step, 3 * kSteps);
  EXPECT_EQ(manifest.info.learning_rate, 0.05);
  {
    std::fstream file(folder / "b/ckpt-4/weights-model-ps-1.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const LogCapture log;
  Job again;
  again.fit({BackupAndRestore(folder / "b", {.delete_checkpoint = false})});
  EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("weights-model-ps-1.safetensors' is damaged")));
  EXPECT_EQ(again.model.iterations(), 4 * kSteps);
  for (const auto& [name, tensor] : whole.model.weights().tensors)
    EXPECT_TRUE(torch::equal(tensor, *again.model.weights().find(name))) << name;
}

TEST(HostedResume, OtherTrainingsAreRefused) {
  const ScratchFolder folder;
  Model alone(mirrored<Words>());
  alone.compile({.optimizer = SGD(0.05), .loss = "mse"});
  alone.fit(batches(),
            {.callbacks = {BackupAndRestore(folder / "b", {.delete_checkpoint = false})}, .verbose = Verbose::kSilent});
  Job job;
  const auto before = job.model.weights();
  EXPECT_EQ(code_of([&] { job.fit({BackupAndRestore(folder / "b")}); }), ErrorCode::kInvalidArgument);
  for (const auto& [name, tensor] : job.model.weights().tensors) EXPECT_TRUE(torch::equal(tensor, *before.find(name))) << name;
}

// Its files are those that a training in one process writes.
TEST(HostedResume, ModelCheckpointWritesTheSameFiles) {
  const ScratchFolder folder;
  Job job;
  Model alone(mirrored<Words>());
  alone.compile({.optimizer = SGD(0.05), .loss = "mse"});
  alone.set_weights(job.model.weights());
  const auto callbacks = [&](const std::string& where) {
    return Callbacks{
        ModelCheckpoint(folder / (where + "/e{epoch}.safetensors")),
        ModelCheckpoint(folder / (where + "/s{step}.safetensors"), {.save_freq = 5}),
        ModelCheckpoint(folder / (where + "/b{epoch}-{loss:.6f}.safetensors"), {.monitor = "loss", .save_best_only = true}),
        ModelCheckpoint(folder / (where + "-all"), {.max_to_keep = 2})};
  };
  job.fit(callbacks("hosted"), 3);
  alone.fit(batches(), {.epochs = 3, .steps_per_epoch = kSteps, .callbacks = callbacks("alone"), .verbose = Verbose::kSilent});
  const auto files = real_files().list(folder / "alone");
  EXPECT_EQ(real_files().list(folder / "hosted"), files);
  EXPECT_GE(files.size(), 3U + 4U + 1U);
  for (const auto& name : files) {
    if (!name.ends_with(".safetensors")) continue;
    const CheckpointPart mine{load_weights(folder / ("hosted/" + name)).tensors, {}};
    const auto theirs = load_weights(folder / ("alone/" + name)).tensors;
    EXPECT_EQ(mine.tensors.size(), theirs.size()) << name;
    for (const auto& [weight, tensor] : theirs) EXPECT_TRUE(torch::equal(tensor, *mine.find(weight))) << name << " " << weight;
  }
  const CheckpointPart last{load_weights(folder / "hosted-all/ckpt-3").tensors, {}};
  for (const auto& [name, tensor] : job.model.weights().tensors) EXPECT_TRUE(torch::equal(tensor, *last.find(name))) << name;
  EXPECT_EQ(read_manifest(folder / "hosted-all/ckpt-3").info.step, 3 * kSteps);
}

}  // namespace
}  // namespace lockstep
