#include "lockstep/serve/snapshots.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <fstream>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/client_table.h"
#include "lockstep/serve/server.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "lockstep/train/optimizers/server_rule.h"
#include "tests/support/crashing_files.h"
#include "tests/support/ps_testing.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using testing::CrashingFiles;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::MethodTable;
using testing::ScratchFolder;
using testing::ServerCluster;
using testing::ThrowsCode;

// A server's store with its snapshots, and one client, without a network. A new one on the same folders is the server, started
// again.
struct Life {
  Life(const std::string& folder, const std::string& counted, FileLayer* files = nullptr)
      : counter(counted + "/updates.count"),
        store({.rules = make_server_rule, .done = &counter.count()}),
        snapshots(store, counter,
                  {.folder = folder, .server = "/job:ps/task:0", .suffix = "-ps-0", .every = {}, .files = files}),
        table(store.methods()) {}

  // Rows 2 to 4 of a variable of 7, with Adam.
  void create() {
    ps::Description description{.name = "table/part_1",
                                .dtype = static_cast<std::int8_t>(at::kFloat),
                                .shape = {3, 2},
                                .whole_shape = {7, 2},
                                .first_row = 2,
                                .rule = Adam(0.1).to_text()};
    table.call<ps::CreateReply>(ps::methods::kCreate, ps::CreateRequest{{9, ++sequence, 0}, description}, {at::ones({3, 2})});
  }

  // Request `number` of the client: a gradient that depends on it.
  std::uint64_t push(std::uint64_t number) {
    const ps::Operation operation{.name = "table/part_1",
                                  .kind = ps::Operation::Kind::kGradient,
                                  .dtype = static_cast<std::int8_t>(at::kFloat),
                                  .shape = {3, 2}};
    const auto gradient = at::full({3, 2}, 0.25 * static_cast<double>(number));
    return table.call<ps::UpdateReply>(ps::methods::kUpdate, ps::UpdateRequest{{9, number, 0}, {operation}}, {gradient})
        .versions[0];
  }
  void push_next(int count) {
    for (int i = 0; i < count; ++i) push(++sequence);
  }

  at::Tensor value() const {
    at::Tensor copy;
    store.find("table/part_1")->look([&](const at::Tensor& v, const ps::UpdateRule*, std::uint64_t) { copy = v.clone(); });
    return copy;
  }

  internal::UpdateCounter counter;
  ps::VariableStore store;
  internal::Snapshots snapshots;
  MethodTable table;
  std::uint64_t sequence = 0;
};

// The value after so many updates of a server that was never stopped.
at::Tensor value_after(int updates) {
  const ScratchFolder folder;
  Life life(folder / "s", folder.path());
  life.create();
  life.push_next(updates);
  return life.value();
}

TEST(Snapshots, BringBackValuesOptimizersAndWhoAskedForWhat) {
  const ScratchFolder folder;
  ps::ClientState known;
  ps::Description described;
  {
    Life life(folder / "s", folder.path());
    EXPECT_EQ(life.snapshots.recovery().snapshot, "");
    life.create();
    life.push_next(4);
    life.snapshots.take();
    known = life.store.client_state(9);
    described = life.store.find("table/part_1")->description();
  }
  Life again(folder / "s", folder.path());
  EXPECT_EQ(again.snapshots.recovery().snapshot, folder / "s/ckpt-1");
  EXPECT_EQ(again.snapshots.recovery().lost_updates, 0U);
  EXPECT_TRUE(again.snapshots.recovery().is_exact);
  EXPECT_TRUE(again.store.find("table/part_1")->description() == described);
  EXPECT_TRUE(at::equal(again.value(), value_after(4)));
  EXPECT_EQ(again.store.client_state(9).last_done, known.last_done);
  EXPECT_EQ(again.store.client_state(9).answers, known.answers);
  EXPECT_EQ(again.push(5), 4U);  // came again: it gets the first answer, and changes nothing
  EXPECT_TRUE(at::equal(again.value(), value_after(4)));
  again.sequence = 5;
  again.push_next(3);
  EXPECT_TRUE(at::equal(again.value(), value_after(7)));  // Adam goes on with its steps and averages
}

TEST(Snapshots, SayHowManyAcknowledgedUpdatesAreLost) {
  const ScratchFolder folder;
  {
    Life life(folder / "s", folder.path());
    life.create();
    life.push_next(3);
    life.snapshots.take();
    life.push_next(5);
  }
  const LogCapture log;
  {
    Life again(folder / "s", folder.path());
    EXPECT_EQ(again.snapshots.recovery().lost_updates, 5U);
    EXPECT_TRUE(again.snapshots.recovery().is_exact);
    EXPECT_TRUE(at::equal(again.value(), value_after(3)));
    EXPECT_GT(again.store.find("table/part_1")->version(), 8U);  // above what a reader can have seen
    EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("5 acknowledged updates after it are lost")));
    again.snapshots.take();  // nothing has changed
    again.sequence = 20;
    again.push_next(2);
    again.snapshots.take();
  }
  Life third(folder / "s", folder.path());
  EXPECT_EQ(third.snapshots.recovery().snapshot, folder / "s/ckpt-2");
  EXPECT_EQ(third.snapshots.recovery().lost_updates, 0U);
}

TEST(Snapshots, WithoutOneAllUpdatesAreLost) {
  const ScratchFolder folder;
  {
    Life life(folder / "s", folder.path());
    life.create();
    life.push_next(3);
  }
  const LogCapture log;
  const Life again(folder / "s", folder.path());
  EXPECT_EQ(again.snapshots.recovery().lost_updates, 3U);
  EXPECT_EQ(again.store.find("table/part_1"), nullptr);
  EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("began with nothing")));
}

TEST(Snapshots, ThatAreDamagedArePassedOver) {
  const ScratchFolder folder;
  {
    Life life(folder / "s", folder.path());
    life.create();
    for (int i = 0; i < 2; ++i) {
      life.push_next(3);
      life.snapshots.take();
    }
  }
  {
    std::fstream file(folder / "s/ckpt-2/state-variables-ps-0.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const LogCapture log;
  const Life again(folder / "s", folder.path());
  EXPECT_EQ(again.snapshots.recovery().snapshot, folder / "s/ckpt-1");
  EXPECT_EQ(again.snapshots.recovery().lost_updates, 3U);
  EXPECT_TRUE(at::equal(again.value(), value_after(3)));
  EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("state-variables-ps-0.safetensors' is damaged")));
}

// Whatever system call is the last, the server finds the snapshot before or the new one, whole.
TEST(Snapshots, CutAtAnyCallLeaveTheOneBefore) {
  const auto old_value = value_after(2);
  const auto new_value = value_after(3);
  for (const auto loss : {CrashingFiles::Loss::kNothing, CrashingFiles::Loss::kUnsynced, CrashingFiles::Loss::kUnsyncedData,
                          CrashingFiles::Loss::kTorn}) {
    int old_ones = 0;
    int new_ones = 0;
    for (int call = 0;; ++call) {
      const ScratchFolder folder;
      const ScratchFolder counted;
      CrashingFiles files(folder.path());
      bool has_ended = false;
      {
        Life life(folder / "s", counted.path(), &files);
        life.create();
        life.push_next(2);
        life.snapshots.take();
        life.push_next(1);
        files.end_at(call, CrashingFiles::End::kCrash);
        try {
          life.snapshots.take();
        } catch (const testing::Crash&) {
        }
        has_ended = files.has_ended();
      }
      files.start_again(loss);
      const LogCapture quiet;
      const Life again(folder / "s", counted.path(), &files);
      const bool is_new = again.snapshots.recovery().lost_updates == 0;
      ASSERT_TRUE(at::equal(again.value(), is_new ? new_value : old_value)) << "call " << call;
      ASSERT_EQ(again.snapshots.recovery().lost_updates, is_new ? 0U : 1U) << "call " << call;
      ++(is_new ? new_ones : old_ones);
      if (!has_ended) break;
    }
    EXPECT_GE(old_ones, 6);
    EXPECT_GE(new_ones, 1);
  }
}

TEST(Snapshots, OfAFullDiskLeaveTheStoreAsItIs) {
  const ScratchFolder folder;
  const ScratchFolder counted;
  CrashingFiles files(folder.path());
  Life life(folder / "s", counted.path(), &files);
  life.create();
  files.end_at(2, CrashingFiles::End::kError);
  EXPECT_THAT([&] { life.snapshots.take(); }, ThrowsCode(ErrorCode::kUnavailable, "the disk is full"));
  life.push_next(1);
  life.snapshots.take();
  EXPECT_TRUE(is_folder(folder / "s/ckpt-1"));
}

TEST(UpdateCounter, IsOfOneProcessAtATimeAndOutlivesIt) {
  const ScratchFolder folder;
  {
    internal::UpdateCounter counter(folder / "n");
    EXPECT_FALSE(counter.previous().has_value());
    counter.count() += 7;
    EXPECT_THAT([&] { internal::UpdateCounter(folder / "n"); },
                ThrowsCode(ErrorCode::kFailedPrecondition, "another parameter server"));
  }
  {
    internal::UpdateCounter counter(folder / "n");
    ASSERT_TRUE(counter.previous().has_value());
    EXPECT_EQ(counter.previous()->count, 7U);
    EXPECT_TRUE(counter.previous()->is_exact);
  }
  {
    std::fstream file(folder / "n", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file << "another start of the machine";
  }
  EXPECT_FALSE(internal::UpdateCounter(folder / "n").previous()->is_exact);
  std::ofstream(folder / "n") << "nonsense";
  EXPECT_FALSE(internal::UpdateCounter(folder / "n").previous()->is_exact);
}

std::uint64_t lost_at(ParameterServerStrategy& strategy, int server) {
  return strategy.server_recoveries()[static_cast<std::size_t>(server)].lost_updates;
}

TEST(Server, StartedAgainHasTheVariablesOfItsSnapshotAndSaysWhatIsLost) {
  const ScratchFolder folder;
  const LogCapture log;
  ServerCluster cluster(2, 1, {.snapshot_folder = folder / "snapshots", .snapshot_every = std::chrono::milliseconds(20)});
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(2));
  EXPECT_TRUE(strategy.server_recoveries()[1].keeps_snapshots);
  const auto scope = strategy.scope();
  Variable v(at::zeros({5, 2}), {.name = "v"});
  const auto newest = [&](int server) { return CheckpointDirectory(str(folder / "snapshots", "/ps-", server), {}).numbers(); };
  const auto deadline = Deadline::after(std::chrono::seconds(60));
  double sum = 0;
  while ((newest(0).empty() || newest(1).empty()) && !deadline.has_passed()) v.assign_add(at::ones({5, 2})), ++sum;
  const auto before = strategy.server_recoveries();
  cluster.stop("ps", 1);
  cluster.start("ps", 1);
  const auto lost = lost_at(strategy, 1);
  EXPECT_EQ(lost_at(strategy, 0), 0U);
  EXPECT_TRUE(at::equal(v.shards()[0].value(), at::full({3, 2}, sum)));
  EXPECT_TRUE(at::equal(v.shards()[1].value(), at::full({2, 2}, sum - static_cast<double>(lost))));
  EXPECT_NE(strategy.server_recoveries()[1].incarnation, before[1].incarnation);
  EXPECT_THAT(log.at(LogLevel::kWarning),
              Contains(HasSubstr("/job:ps/task:1 was started again, and goes on from the snapshot")));
  v.assign_add(at::ones({5, 2}));
  EXPECT_TRUE(at::equal(v.shards()[1].value(), at::full({2, 2}, sum - static_cast<double>(lost) + 1)));
}

}  // namespace
}  // namespace lockstep
