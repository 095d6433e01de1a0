#include <ATen/ATen.h>

#include <atomic>
#include <latch>
#include <random>

#include "lockstep/ps/cluster_coordinator.h"
#include "tests/support/closure_workers.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ClosureCluster;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

std::atomic<std::int64_t> g_ended = 0;
std::atomic<int> g_held = 0;

// What a closure sees of the others while it works for a while.
const auto kWork = remote_function("max_staleness_test.work", [](int microseconds) {
  const auto before = g_ended.load();
  const auto until = Deadline::after(std::chrono::microseconds(microseconds));
  while (!until.has_passed()) std::this_thread::yield();
  return g_ended++ - before;
});
// The first time it is run it stays until it is interrupted.
const auto kHold = remote_function("max_staleness_test.hold", [](WorkerContext& worker) {
  if (g_held++ > 0) return;
  const auto deadline = soon();
  while (!worker.is_cancelled() && !deadline.has_passed()) std::this_thread::yield();
  if (worker.is_cancelled()) throw Error(ErrorCode::kCancelled, "interrupted");
});

TEST(MaxStaleness, HoldsForWhatClosuresSeeThemselves) {
  for (const std::size_t bound : {0, 1, 3, 1'000}) {
    ClosureCluster cluster(4, {.max_staleness = bound});
    std::mt19937 random(7);
    std::vector<RemoteValue<std::int64_t>> stale;
    for (int i = 0; i < 300; ++i) stale.push_back(cluster->schedule(kWork, static_cast<int>(random() % 300)));
    cluster->join(soon());
    std::int64_t most = 0;
    for (const auto& one : stale) most = std::max(most, one.get());
    EXPECT_LE(most, static_cast<std::int64_t>(bound));
  }
}

TEST(MaxStaleness, ALostWorkerDoesNotHoldUpTheOthers) {
  ClosureCluster cluster(2, {.max_staleness = 1});
  g_held = 0;
  auto held = cluster->schedule(kHold);
  const auto deadline = soon();
  while (g_held == 0 && !deadline.has_passed()) std::this_thread::yield();
  std::vector<RemoteValue<std::int64_t>> others;
  for (int i = 0; i < 5; ++i) others.push_back(cluster->schedule(kWork, 10));
  others[0].get(soon());
  EXPECT_EQ(others[1].status(), RemoteValueStatus::kNotReady);
  cluster.worker(cluster.worker(0).service().status().function.empty() ? 1 : 0).kill();
  for (const auto& one : others) one.get(soon());
  held.get(soon());
  cluster->join(soon());
  EXPECT_EQ(g_held, 2);
}

}  // namespace
}  // namespace lockstep
