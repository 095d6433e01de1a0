#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/base/deadline.h"
#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/checkpoint/server_files.h"
#include "lockstep/checkpoint/server_part.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/view_keeper.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Checkpoints that parameter servers write; all tasks in one process.

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ScratchFolder;
using testing::ServerCluster;
using testing::ThrowsCode;

at::Tensor some_rows() { return at::arange(22, at::kFloat).reshape({11, 2}); }

// Servers with a strategy of one's own, and variables that are trained there.
struct Job {
  explicit Job(int servers, Partitioner partitioner = nullptr, const OptimizerSpec& optimizer = Adam(0.1), int replication = 1)
      : cluster(servers, 1), strategy(cluster.chief(), std::move(partitioner), {.replication = replication}) {
    table = create("table", at::zeros({11, 2}), optimizer.to_text());
    bias = create("bias", at::zeros({3}), optimizer.to_text());
    scale = create("scale", at::zeros({}, at::kDouble), "");
  }

  Variable create(const std::string& name, const at::Tensor& value, const std::string& rule) {
    const auto part = [value](const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& offset) {
      return shape.empty() ? value : value.narrow(0, offset[0], shape[0]);
    };
    auto& home = *strategy.variables();
    return home.find(home.create({name, value.sizes().vec(), value.scalar_type(), !rule.empty()}, {.rule = rule, .part = part}),
                     home.replicas());
  }

  // Of the table, a row that the first part has wherever it is divided here.
  void push(int step) {
    const auto row = at::full({1, 2}, 0.5 + step);
    const auto ids = at::tensor({step % 3}, at::kLong).unsqueeze(0);
    strategy.variables()->push(
        {{*table, at::_sparse_coo_tensor_unsafe(ids, row, {11, 2})}, {*bias, at::full({3}, 1.0 + step)}});
  }

  NamedTensors values() const { return {{"table", table->value()}, {"bias", bias->value()}, {"scale", scale->value()}}; }

  Checkpoint checkpoint() const { return Checkpoint(strategy).track("model", server_part(strategy)); }

  ServerCluster cluster;
  ParameterServerStrategy strategy;
  std::optional<Variable> table, bias, scale;
};

void expect_equal(const NamedTensors& a, const NamedTensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << what << ": " << a[i].first;
}

TEST(ServerCheckpoint, ComesBackOnOtherServersDividedOtherwise) {
  const ScratchFolder folder;
  Job first(2, FixedShardsPartitioner(2));
  first.table->assign(some_rows());
  first.scale->assign(2.5);
  for (int step = 0; step < 4; ++step) first.push(step);  // rows of the first part alone
  first.checkpoint().write(folder / "a", {.step = 4});
  EXPECT_THAT(real_files().list(folder / "a"),
              ElementsAre("manifest.json", "state-model-ps-0.safetensors", "state-model-ps-1.safetensors", "state.safetensors",
                          "weights-model-ps-0.safetensors", "weights-model-ps-1.safetensors"));

  Job second(3, FixedShardsPartitioner(4));
  EXPECT_EQ(second.checkpoint().read(folder / "a").info.step, 4);
  expect_equal(second.values(), first.values(), "2 servers to 3");
  second.checkpoint().write(folder / "b");

  Job third(1);
  third.checkpoint().read(folder / "b");
  expect_equal(third.values(), first.values(), "3 servers to 1");
  for (int step = 0; step < 4; ++step) {
    for (auto* const job : {&first, &second, &third}) job->push(step);
    expect_equal(second.values(), first.values(), str("3 servers, step ", step));
    expect_equal(third.values(), first.values(), str("1 server, step ", step));
  }
}

TEST(ServerCheckpoint, OfReplicatedVariablesIsAsOfOthers) {
  const ScratchFolder folder;
  Job first(2, FixedShardsPartitioner(2), Adam(0.1), 2);
  first.table->assign(some_rows());
  for (int step = 0; step < 4; ++step) first.push(step);
  first.checkpoint().write(folder / "a", {.step = 4});
  EXPECT_THAT(real_files().list(folder / "a"),
              ElementsAre("manifest.json", "state-model-ps-0.safetensors", "state-model-ps-1.safetensors", "state.safetensors",
                          "weights-model-ps-0.safetensors", "weights-model-ps-1.safetensors"));
  Job alone(1);
  alone.checkpoint().read(folder / "a");
  expect_equal(alone.values(), first.values(), "2 replicated servers to 1 alone");
  alone.checkpoint().write(folder / "b");

  Job third(3, FixedShardsPartitioner(3), Adam(0.1), 2);
  for (int step = 0; step < 2; ++step) third.push(step);
  third.checkpoint().read(folder / "b");
  expect_equal(third.values(), first.values(), "1 server to 3 replicated ones");
  // What was restored is on both servers of each group: it outlives the loss of one.
  third.cluster.stop("ps", 1);
  for (int step = 0; step < 4; ++step) {
    for (auto* const job : {&first, &alone, &third}) job->push(step);
    expect_equal(alone.values(), first.values(), str("1 server, step ", step));
    expect_equal(third.values(), first.values(), str("2 of 3 servers, step ", step));
  }
}

TEST(ServerCheckpoint, OfReplicatedVariablesIsWrittenWithoutAServerThatIsLost) {
  const ScratchFolder folder;
  Job job(2, FixedShardsPartitioner(2), Adam(0.1), 2);
  CheckpointManager manager(job.checkpoint(), folder / "c", {});
  job.table->assign(some_rows());
  job.push(0);
  const auto saved = job.values();
  job.cluster.stop("ps", 0);  // nobody has noticed it yet
  manager.save(1);
  EXPECT_THAT(real_files().list(folder / "c/ckpt-1"),
              ElementsAre("manifest.json", "state-model-ps-0-2.safetensors", "state-model-ps-1.safetensors",
                          "state.safetensors", "weights-model-ps-0-2.safetensors", "weights-model-ps-1.safetensors"));
  job.push(1);
  EXPECT_EQ(manager.restore_latest()->number, 1);
  expect_equal(job.values(), saved, "on one server");
  job.cluster.start("ps", 0);
  job.strategy.connections()->keeper->wait_until_complete(Deadline::after(std::chrono::seconds(30)));
  Job other(1);
  other.checkpoint().read(folder / "c/ckpt-1");
  for (auto* const one : {&job, &other}) one->push(2);
  expect_equal(other.values(), job.values(), "elsewhere");
}

TEST(ServerCheckpoint, KeepsLearningRatesAndStepsAndRaisesVersions) {
  const ScratchFolder folder;
  Job first(1);
  for (int step = 0; step < 3; ++step) first.push(step);
  first.strategy.variables()->set_learning_rate({*first.bias}, 0.25);
  first.checkpoint().write(folder / "a");
  const auto saved = first.values();
  for (int step = 0; step < 3; ++step) first.push(step);
  const auto before = first.strategy.variables()->client().describe(0);
  first.checkpoint().read(folder / "a");
  expect_equal(first.values(), saved, "as they were");
  const auto after = first.strategy.variables()->client().describe(0);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_GT(after[i].version, before[i].version);  // no reader keeps the old
  Job other(1);
  other.checkpoint().read(folder / "a");
  other.push(3);
  first.push(3);
  expect_equal(other.values(), first.values(), "with the rate and the steps of then");
  Job fresh(1);
  fresh.bias->assign(saved[1].second);
  fresh.push(3);
  EXPECT_FALSE(at::equal(fresh.bias->value(), first.bias->value()));
}

TEST(ServerCheckpoint, OpensAsPlainFilesAndInOneProcess) {
  const ScratchFolder folder;
  Job job(2, FixedShardsPartitioner(2));
  job.table->assign(some_rows());
  job.checkpoint().write(folder / "a");
  const auto file = load_weights(folder / "a/weights-model-ps-0.safetensors");
  const CheckpointPart part{file.tensors, {}};
  ASSERT_NE(part.find("table/part_0"), nullptr);
  EXPECT_TRUE(at::equal(*part.find("table/part_0"), some_rows().narrow(0, 0, 6)));
  EXPECT_THAT(file.metadata.at("variables"),
              HasSubstr(R"("table/part_0":{"of":"table","whole_shape":[11,2],"first_row":0,"version":1,)"));
  const CheckpointPart all{load_weights(folder / "a").tensors, {}};
  EXPECT_EQ(all.tensors.size(), 3U);
  EXPECT_TRUE(at::equal(*all.find("table"), some_rows()));
}

// As TensorFlow's testCheckpoint does with tf.train.Checkpoint(w=w).
TEST(ServerCheckpoint, OfADividedVariableByItsOwnName) {
  const ScratchFolder folder;
  for (const bool is_first : {true, false}) {
    const ServerCluster cluster(2, 1);
    ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(2));
    const auto scope = strategy.scope();
    Variable w(at::zeros({4}), {.name = "w"});
    if (is_first) {
      w.assign(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
      Checkpoint(strategy).track("w", w).track("all", server_part(strategy)).write(folder / "a");
      continue;
    }
    for (const auto* const name : {"w", "all"}) {
      w.assign(at::zeros({4}));
      Checkpoint checkpoint(strategy);
      if (std::string(name) == "w") checkpoint.track("w", w);
      else checkpoint.track("all", server_part(strategy));
      checkpoint.read(folder / "a");
      EXPECT_TRUE(at::equal(w.shards()[0].value(), at::tensor({1.0F, 2.0F})));
      EXPECT_TRUE(at::equal(w.shards()[1].value(), at::tensor({3.0F, 4.0F})));
    }
  }
}

TEST(ServerCheckpoint, OfOtherVariablesIsRefusedWithAllReasonsAndChangesNothing) {
  const ScratchFolder folder;
  Job saved(2);
  saved.create("gone", at::zeros({2}), "");
  saved.checkpoint().write(folder / "a");
  Job other(1, FixedShardsPartitioner(2), SGD({.learning_rate = 0.1, .momentum = 0.9}));
  other.create("new", at::zeros({2}), "");
  other.table->assign(some_rows());
  EXPECT_THAT([&] { other.checkpoint().read(folder / "a"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "model/gone: unexpected", "model/new: missing", "nothing was changed"));
  EXPECT_TRUE(at::equal(other.table->value(), some_rows()));

  saved.push(0);
  saved.strategy.connections()->client->remove(1, {"gone"});
  saved.checkpoint().write(folder / "b");
  Job momentum(1, nullptr, SGD({.learning_rate = 0.1, .momentum = 0.9}));
  EXPECT_THAT([&] { momentum.checkpoint().read(folder / "b"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "table: was trained by", "adam", "momentum"));
}

TEST(ServerCheckpoint, ThatIsDamagedIsPassedOverAndALostServerLeavesNothing) {
  const ScratchFolder folder;
  Job job(2, FixedShardsPartitioner(2));
  CheckpointManager manager(job.checkpoint(), folder / "c", {.max_to_keep = 2});
  for (const double value : {1.0, 2.0, 3.0}) {
    job.table->assign(at::full({11, 2}, value));
    const auto path = manager.save(static_cast<std::int64_t>(value));
    EXPECT_EQ(read_manifest(path).info.step, value);  // on the disk, though the manager is `async`
  }
  EXPECT_EQ(manager.checkpoints().size(), 2U);
  {
    std::fstream file(folder / "c/ckpt-3/weights-model-ps-1.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const LogCapture log;
  EXPECT_EQ(manager.restore_latest()->number, 2);
  EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("weights-model-ps-1.safetensors' is damaged")));
  EXPECT_TRUE(at::equal(job.table->value(), at::full({11, 2}, 2.0F)));

  job.cluster.stop("ps", 1);
  EXPECT_THAT([&] { manager.save(4); }, ThrowsCode(ErrorCode::kUnavailable, "/job:ps/task:1"));
  EXPECT_THAT(real_files().list(folder / "c"), ElementsAre(".lock", "ckpt-2", "ckpt-3"));
}

}  // namespace
}  // namespace lockstep
