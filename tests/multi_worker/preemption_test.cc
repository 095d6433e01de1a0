#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "lockstep/base/exit_codes.h"
#include "lockstep/base/str.h"
#include "tests/multi_worker/cluster.h"
#include "tests/support/scratch_folder.h"

// Workers that are told to go (SIGTERM): all save after the same call and end with a code of their own; started again, they
// come to the end that they would have come to.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr auto kLimit = 60s;

std::vector<std::string> loop(const ScratchFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"preempted", "timeout=20", "join=30", "folder=" + folder / "d"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<Ending> run_workers(int count, const std::vector<std::string>& words) {
  Cluster cluster(count);
  cluster.start_all(words);
  return cluster.join(kLimit);
}

// What stands after `word` in every worker's output.
std::vector<std::string> after(const std::vector<Ending>& endings, const std::string& word) {
  std::vector<std::string> all;
  for (const auto& ending : endings) all.push_back(ending.after(word).value_or(str("nothing", ending)));
  return all;
}

bool has_checkpoint(const ScratchFolder& folder, int number) {
  return !content_of(folder / str("d/ckpt-", number, "/manifest.json")).empty();
}

// Case 547.
TEST(Preemption, AllWorkersSaveOnceAndGoOnWhenStartedAgain) {
  const ScratchFolder folder;
  const auto ended = run_workers(4, loop(folder, {"who=2", "told=40"}));
  EXPECT_THAT(ended, Each(Field(&Ending::exit_code, kPreemptedExitCode)));
  EXPECT_THAT(ended[0].log, HasSubstr("after 41 calls of run()"));
  EXPECT_TRUE(has_checkpoint(folder, 1));
  EXPECT_FALSE(has_checkpoint(folder, 2));
  const auto again = run_workers(4, loop(folder));
  EXPECT_THAT(after(again, "begins"), Each("41 with 164"));
  EXPECT_THAT(after(again, "sum"), Each("480"));
  EXPECT_THAT(again, Each(Field(&Ending::exit_code, 0)));
}

// Case 548.
TEST(Preemption, WithAGracePeriodTheySaveTwiceAndTrainInBetween) {
  const ScratchFolder folder;
  const auto ended = run_workers(4, loop(folder, {"who=2", "told=10", "grace=5000", "work=60"}));
  EXPECT_THAT(ended, Each(Field(&Ending::exit_code, kPreemptedExitCode)));
  EXPECT_THAT(ended[0].log, AllOf(HasSubstr("after 11 calls of run(); goes on"), HasSubstr("calls of run(); ends")));
  EXPECT_TRUE(has_checkpoint(folder, 2));
  EXPECT_FALSE(has_checkpoint(folder, 3));
  const auto again = run_workers(4, loop(folder));
  EXPECT_GT(std::stoi(after(again, "begins")[0]), 11) << again[0];
  EXPECT_THAT(after(again, "sum"), Each("480"));
}

TEST(Preemption, TheLauncherStartsAJobAgainThatWasToldToGo) {
  const ScratchFolder folder;
  auto words = loop(folder, {"who=1", "told=7"});
  words.insert(words.begin(), {LOCKSTEP_COMMAND, "run", "-n", "2", "--max-restarts", "1", LOCKSTEP_WORKER});
  const auto ending = run_process("lockstep run", {words}, kLimit);
  EXPECT_EQ(ending.exit_code, 0) << ending;
  EXPECT_THAT(ending.log, AllOf(HasSubstr("saved and ended because it was told to"), HasSubstr("starts all tasks again")));
  EXPECT_THAT(ending.output, AllOf(HasSubstr("[worker 1] begins 8 with 16"), HasSubstr("[worker 0] sum 240")));
}

TEST(Preemption, ALauncherThatIsToldPassesItOnAndEndsAsTheyDo) {
  const ScratchFolder folder;
  auto words = loop(folder, {"work=50"});
  words.insert(words.begin(), {LOCKSTEP_COMMAND, "run", "-n", "2", "--max-restarts", "1", LOCKSTEP_WORKER});
  Process launcher("lockstep run", {words});
  ASSERT_TRUE(launcher.wait_for_line("[worker 0] begins 0", Process::Clock::now() + kLimit));
  launcher.signal(SIGTERM);
  const auto ending = launcher.wait(Process::Clock::now() + kLimit);
  EXPECT_EQ(ending.exit_code, kPreemptedExitCode) << ending;
  EXPECT_TRUE(has_checkpoint(folder, 1)) << ending;
  EXPECT_THAT(ending.log, AllOf(HasSubstr("saved and ended because it was told to"), ::testing::Not(HasSubstr("failed"))));
}

TEST(Preemption, AnErrorOfOneWorkerIsTheSameOnAll) {
  for (const auto* where : {"in_replica=0", "in_replica=1"}) {
    const ScratchFolder folder;
    const auto endings = run_workers(2, loop(folder, {"who=1", "throws=5", where}));
    EXPECT_THAT(endings, Each(Field(&Ending::exit_code, 3))) << where;
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.error_code(), "kOutOfRange") << ending;
      EXPECT_THAT(ending.after("error").value_or(""), HasSubstr("no memory is left"));
      EXPECT_LT(ending.lasted, 15s);  // nobody waited for its timeout
    }
    EXPECT_FALSE(has_checkpoint(folder, 1));
  }
}

}  // namespace
}  // namespace lockstep::testing
