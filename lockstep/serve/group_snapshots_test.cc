#include "lockstep/serve/group_snapshots.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/view_keeper.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::ScratchFolder;
using testing::ServerCluster;

// Variables on two servers that keep snapshots, and what is in each group's newest one.
struct Kept {
  Kept() {
    const auto scope = strategy.scope();
    v.emplace(at::zeros({3}), VariableOptions{.name = "v"});  // of group 0
    w.emplace(at::zeros({3}), VariableOptions{.name = "w"});  // of group 1
  }
  // All updates so far.
  bool has_snapshots(std::int64_t updates) const {
    for (const int group : {0, 1}) {
      const CheckpointDirectory directory(str(folder / "s", "/ps-", group, "/group-", group), {});
      const auto numbers = directory.numbers();
      if (numbers.empty() || read_manifest(directory.path_of(numbers.back())).info.step < updates) return false;
    }
    return true;
  }
  void add(double value) {
    v->assign_add(value);
    w->assign_add(2 * value);
  }
  void wait_for_snapshots(std::int64_t updates) const {
    const auto until = Deadline::after(std::chrono::seconds(60));
    while (!has_snapshots(updates) && !until.has_passed()) std::this_thread::yield();
    ASSERT_TRUE(has_snapshots(updates));
  }

  ScratchFolder folder;
  ServerCluster cluster{2, 1, {.snapshot_folder = folder / "s", .snapshot_every = std::chrono::milliseconds(20)}};
  ParameterServerStrategy strategy{cluster.chief(), nullptr, {.replication = 2}};
  std::optional<Variable> v, w;
};

TEST(GroupSnapshots, BringBackGroupsWhoseServersAreBothLost) {
  const LogCapture log;
  Kept job;
  for (int i = 0; i < 5; ++i) job.add(1);
  job.wait_for_snapshots(5);
  const auto epoch = job.strategy.connections()->keeper->views()[0].epoch;
  for (const int server : {0, 1}) job.cluster.stop("ps", server);
  for (const int server : {0, 1}) job.cluster.start("ps", server);
  EXPECT_TRUE(at::equal(job.v->value(), at::full({3}, 5.0F)));
  EXPECT_TRUE(at::equal(job.w->value(), at::full({3}, 10.0F)));
  EXPECT_GT(job.strategy.connections()->keeper->views()[0].epoch, epoch);
  EXPECT_THAT(log.at(LogLevel::kWarning), Contains(HasSubstr("goes on from the snapshot of /job:ps/task:")));
  job.add(1);  // on two servers again
  job.strategy.connections()->keeper->wait_until_complete(Deadline::after(std::chrono::seconds(30)));
  EXPECT_TRUE(at::equal(job.w->value(), at::full({3}, 12.0F)));
}

TEST(GroupSnapshots, AreNotUsedWhileOneServerLives) {
  Kept job;
  job.add(1);
  job.wait_for_snapshots(1);
  job.cluster.stop("ps", 0);
  for (int i = 0; i < 3; ++i) job.add(1);
  job.cluster.start("ps", 0);
  job.strategy.connections()->keeper->wait_until_complete(Deadline::after(std::chrono::seconds(30)));
  EXPECT_TRUE(at::equal(job.v->value(), at::full({3}, 4.0F)));
  for (const auto& view : job.strategy.connections()->keeper->views()) EXPECT_FALSE(view.is_restored);
}

TEST(GroupSnapshots, AreWhereAJobThatIsStartedAgainBegins) {
  const ScratchFolder folder;
  const ServerOptions options{.snapshot_folder = folder / "s", .snapshot_every = std::chrono::milliseconds(20)};
  {
    Kept job;
    job.add(1);
    job.wait_for_snapshots(1);
    std::rename((job.folder / "s").c_str(), (folder / "s").c_str());
  }
  const ServerCluster cluster(2, 1, options);
  ParameterServerStrategy strategy(cluster.chief(), nullptr, {.replication = 2});
  const auto scope = strategy.scope();
  Variable v(at::zeros({3}), {.name = "v"});  // it is there, and stays as it is
  EXPECT_TRUE(at::equal(v.value(), at::ones({3})));
}

}  // namespace
}  // namespace lockstep
