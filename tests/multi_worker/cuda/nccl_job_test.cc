#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "lockstep/base/str.h"
#include "tests/multi_worker/cluster.h"

// Jobs whose workers are on GPUs, with the engine nccl. All share one GPU, which NCCL refuses: where it is to be used, each
// worker tells it that it is on a host of its own.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Hosts { kOne, kMany };

Variables variables_of(Hosts hosts, int worker) {
  Variables variables = {{"LOCKSTEP_LOG", "info"}, {"NCCL_SOCKET_IFNAME", "lo"}};
  if (hosts == Hosts::kMany) variables["NCCL_HOSTID"] = str("host", worker);
  return variables;
}

void start(Cluster& cluster, const std::vector<int>& replicas, Hosts hosts, std::vector<std::string> words) {
  for (int worker = 0; worker < cluster.size(); ++worker) {
    auto mine = words;
    mine.insert(mine.begin() + 1, {"device=GPU:0", str("replicas=", replicas[static_cast<std::size_t>(worker)])});
    cluster.start(worker, mine, variables_of(hosts, worker));
  }
}

std::vector<Ending> run(const std::vector<int>& replicas, Hosts hosts, const std::vector<std::string>& words) {
  Cluster cluster(static_cast<int>(replicas.size()));
  start(cluster, replicas, hosts, words);
  return cluster.join(100s);
}

// The digest of the weights after some steps, the same on all workers.
std::string weights_of(const std::vector<Ending>& endings) {
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.exit_code, 0) << ending;
    EXPECT_EQ(ending.after("weights").value_or("none"), endings[0].after("weights").value_or("nothing")) << ending;
  }
  return endings[0].after("weights").value_or("nothing");
}

const std::vector<std::string> kTrain = {"train", "steps=12", "dropout=0", "timeout=30"};
std::vector<std::string> train_with(const std::string& word) {
  auto words = kTrain;
  words.push_back(word);
  return words;
}

TEST(NcclJob, TrainsTheBitsOfOneProcess) {
  const auto alone = weights_of(run({2}, Hosts::kOne, kTrain));
  const auto together = run({1, 1}, Hosts::kMany, kTrain);
  EXPECT_EQ(weights_of(together), alone);
  for (const auto& ending : together)
    EXPECT_THAT(ending.log, HasSubstr("nccl for GPU tensors (every worker has GPUs of its own)")) << ending;
  EXPECT_EQ(weights_of(run({1, 1}, Hosts::kMany, train_with("engine=nccl"))), alone);
  EXPECT_EQ(weights_of(run({1, 1}, Hosts::kMany, train_with("overlap=0"))), alone);
}

TEST(NcclJob, TrainsTheBitsOfEnginesThatGoThroughTheCpu) {
  const auto nccl = weights_of(run({1, 1}, Hosts::kMany, kTrain));
  for (const std::string engine : {LOCKSTEP_CPU_ENGINES})
    EXPECT_EQ(weights_of(run({1, 1}, Hosts::kOne, train_with("engine=" + engine))), nccl) << engine;
}

TEST(NcclJob, TrainsTheBitsOfOneProcessWithUnequalWorkers) {
  const auto alone = weights_of(run({4}, Hosts::kOne, kTrain));
  EXPECT_EQ(weights_of(run({1, 3}, Hosts::kMany, kTrain)), alone);
  EXPECT_EQ(weights_of(run({1, 2, 1}, Hosts::kMany, kTrain)), alone);
}

TEST(NcclJob, CollectivesOnGpusAreThoseOnTheCpu) {
  for (const auto& replicas : std::vector<std::vector<int>>{{1, 1}, {2, 1}, {1, 2, 1}})
    for (const auto& ending : run(replicas, Hosts::kMany, {"tensors", "timeout=30"})) {
      EXPECT_EQ(ending.exit_code, 0) << ending;
      EXPECT_THAT(ending.output, AllOf(HasSubstr("\nend"), Not(HasSubstr("WRONG")))) << ending;
    }
}

TEST(NcclJob, WorkersThatShareAGpuGoThroughTheCpu) {
  for (const auto& ending : run({1, 1}, Hosts::kOne, {"tensors", "timeout=30"})) {
    EXPECT_EQ(ending.exit_code, 0) << ending;
    EXPECT_THAT(ending.output, AllOf(HasSubstr("\nend"), Not(HasSubstr("WRONG")))) << ending;
    EXPECT_THAT(ending.log, AllOf(HasSubstr("through the CPU's memory"), HasSubstr("worker 0 and worker 1 share"))) << ending;
  }
}

TEST(NcclJob, IsRefusedWhereWorkersShareAGpu) {
  for (const auto& ending : run({1, 1}, Hosts::kOne, train_with("engine=nccl"))) {
    EXPECT_EQ(ending.error_code(), "kInvalidArgument") << ending;
    EXPECT_THAT(ending.output, AllOf(HasSubstr("worker 0 and worker 1 share"), HasSubstr("GPU-"))) << ending;
  }
}

TEST(NcclJob, IsRefusedWhereAReplicaIsOnTheCpu) {
  Cluster cluster(2);
  for (int worker = 0; worker < 2; ++worker)
    cluster.start(worker, {"train", worker == 0 ? "device=GPU:0" : "device=CPU:0", "engine=nccl"});
  for (const auto& ending : cluster.join(60s)) {
    EXPECT_EQ(ending.error_code(), "kInvalidArgument") << ending;
    EXPECT_THAT(ending.output, HasSubstr("worker 1 has a replica that is not on a GPU")) << ending;
  }
}

// What the survivor says when worker 1 gets the signal in the middle of training.
Ending survivor_of(int signal) {
  Cluster cluster(2);
  std::vector<std::string> words = {"train", "device=GPU:0", "steps=1000000", "dropout=0", "timeout=4", "stall=1"};
  auto& survivor = cluster.start(0, words, variables_of(Hosts::kMany, 0));
  auto& other = cluster.start(1, words, variables_of(Hosts::kMany, 1));
  EXPECT_TRUE(survivor.wait_for_line("begun", Process::Clock::now() + 60s));
  other.signal(signal);
  const auto begin = Process::Clock::now();
  EXPECT_TRUE(survivor.is_over(begin + 20s));
  const auto time = Process::Clock::now() - begin;
  EXPECT_LT(time, signal == SIGKILL ? 3s : 12s);
  ::testing::Test::RecordProperty("milliseconds_to_the_end", static_cast<int>(time / 1ms));
  other.signal(SIGKILL);
  return cluster.join(10s)[0];
}

TEST(NcclJob, NamesAWorkerThatIsKilled) {
  const auto ending = survivor_of(SIGKILL);
  EXPECT_EQ(ending.error_code(), "kUnavailable") << ending;
  EXPECT_THAT(ending.output, HasSubstr("worker 1")) << ending;
}

TEST(NcclJob, NamesAWorkerThatStops) {
  const auto ending = survivor_of(SIGSTOP);
  EXPECT_EQ(ending.error_code(), "kDeadlineExceeded") << ending;
  EXPECT_THAT(ending.output, HasSubstr("worker 1")) << ending;
}

}  // namespace
}  // namespace lockstep::testing
