#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/str.h"
#include "tests/multi_worker/cluster.h"

// Cases of CASES.md that need several processes. The scenario `cases` prints what came, by the number of the case.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Ending> run_cases(const std::string& part, const std::vector<int>& replicas,
                              const std::vector<std::string>& more = {}) {
  Cluster cluster(static_cast<int>(replicas.size()));
  for (int worker = 0; worker < cluster.size(); ++worker) {
    std::vector<std::string> words = {"cases", "part=" + part, "timeout=20", "join=30"};
    words.push_back(str("replicas=", replicas[static_cast<std::size_t>(worker)]));
    words.insert(words.end(), more.begin(), more.end());
    cluster.start(worker, words);
  }
  return cluster.join(60s);
}

// What every worker printed for a case.
std::vector<std::string> answers(const std::vector<Ending>& endings, int number) {
  std::vector<std::string> all;
  for (const auto& ending : endings) all.push_back(ending.after(std::to_string(number)).value_or(str("nothing", ending)));
  return all;
}

TEST(FirstVersionWorkers, HaveAConfigAndIteratorsOfTheirOwn) {
  const auto endings = run_cases("first_version", {1, 1});
  for (const auto& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending;
  EXPECT_THAT(answers(endings, 257), ElementsAre("/job:worker/replica:0/task:0 [/job:worker/task:0] [CollectiveReduce]",
                                                 "/job:worker/replica:0/task:0 [/job:worker/task:1] [CollectiveReduce]"));
  EXPECT_THAT(answers(endings, 256), ElementsAre("tf.distribute.InputContext(input pipeline id 0, total: 2), 2 replicas",
                                                 "tf.distribute.InputContext(input pipeline id 1, total: 2), 2 replicas"));
  EXPECT_THAT(answers(endings, 46), Each("10 12 kOutOfRange 10 12 kOutOfRange"));
}

// Two workers of one replica each answer all their cases in one run.
class TwoWorkers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { endings() = run_cases("pair", {1, 1}); }
  static std::vector<Ending>& endings() {
    static std::vector<Ending> kept;
    return kept;
  }
  static std::vector<std::string> answers(int number) { return testing::answers(endings(), number); }
};

TEST_F(TwoWorkers, EndWell) {
  for (const auto& ending : endings()) EXPECT_EQ(ending.exit_code, 0) << ending;
}

TEST_F(TwoWorkers, TheStrategyHasTheResolverOfItsCluster) {
  EXPECT_THAT(answers(101), ElementsAre("worker 0 the same", "worker 1 the same"));
}

TEST_F(TwoWorkers, APlainValueOfEachIsReducedOverTheWorkers) {
  EXPECT_THAT(answers(97), Each("2"));
  EXPECT_THAT(answers(98), Each("2"));
}

TEST_F(TwoWorkers, ResultsOfRunAreReducedOverTheWorkers) { EXPECT_THAT(answers(100), Each("2 2 2 2")); }

TEST_F(TwoWorkers, ReductionsAndHostInputsAreThoseOfOneProcess) {
  EXPECT_THAT(answers(259), ElementsAre("1 2 2 [0]; [2]", "1 2 2 [1]; [3]"));
}

TEST_F(TwoWorkers, ADatasetFunctionGivesEachItsShard) { EXPECT_THAT(answers(94), ElementsAre("10", "35")); }

TEST_F(TwoWorkers, APartialLastBatchIsDividedToo) {
  EXPECT_THAT(answers(95), ElementsAre("[0,1,2,3]; [8,9,10]", "[4,5,6,7]; [11,12,13]"));
}

TEST_F(TwoWorkers, ALastBatchThatIsTooSmallLeavesOneWithoutRows) {
  EXPECT_THAT(answers(283), ElementsAre("[0]; [2]; [4]; [6]; [8]", "[1]; [3]; [5]; [7]; []"));
}

// Where the others would have written there is nothing, not even a folder.
TEST_F(TwoWorkers, ModelsAreSavedByTheChiefAlone) {
  EXPECT_THAT(answers(542), ElementsAre("[1.safetensors,2.safetensors,all] [.lock,ckpt-1,ckpt-2]", "[] []"));
}

TEST_F(TwoWorkers, ShareTheRowsOfEveryBatch) {
  EXPECT_THAT(answers(293), ElementsAre("kInvalidArgument; [0]; [2]", "kInvalidArgument; [1]; [3]"));
  EXPECT_THAT(answers(301), ElementsAre("[0,1]; [3,4]; [6]", "[2]; [5]; [7]"));
  EXPECT_THAT(answers(353), ElementsAre("0 odd of 512", "512 odd of 512"));
}

TEST_F(TwoWorkers, ShareTheRowsOfAPrefetchedDataset) { EXPECT_THAT(answers(346), ElementsAre("[0]; [2]", "[1]; [3]")); }

TEST_F(TwoWorkers, TheOneWithLessDataGetsEmptySteps) {
  EXPECT_THAT(answers(295), ElementsAre("[0,1]; [2,3]; [4,5]; [6,7]; []", "[0,1]; [2,3]; [4,5]; [6,7]; [8]"));
}

TEST_F(TwoWorkers, WithoutShardingEachReadsEverything) {
  EXPECT_THAT(answers(299), Each("[0,1,2,3]; [4,5,6,7]; [8,9,10,11]"));
  EXPECT_THAT(answers(356), Each("[0,1,2,3,4]; [5,6,7,8,9]; [10,11,12,13,14]; [15,16,17,18,19]"));
}

TEST_F(TwoWorkers, ShardingByFileNeedsFiles) { EXPECT_THAT(answers(349), Each("kNotFound")); }

TEST_F(TwoWorkers, AnEmptyDatasetEndsAtOnce) { EXPECT_THAT(answers(352), Each("kOutOfRange")); }

TEST(Workers, WithTwoReplicasEachShareTheRowsInReplicaOrder) {
  const auto endings = run_cases("replicas", {2, 2});
  EXPECT_THAT(answers(endings, 284), ElementsAre("[0][1]; [4][5]; [8][9]; [12][13]", "[2][3]; [6][7]; [10][11]; [14][]"));
}

TEST(Workers, ThreeOfOneReplicaGetPartsThatDifferByOneRow) {
  const auto endings = run_cases("replicas", {1, 1, 1});
  EXPECT_THAT(answers(endings, 358), ElementsAre("[0,1]; [4,5]", "[2]; [6]", "[3]; [7]"));
}

TEST(Workers, ThreeOfTwoReplicasAreSixInSync) {
  const auto endings = run_cases("replicas", {2, 2, 2});
  EXPECT_THAT(answers(endings, 254), Each("6"));
  EXPECT_THAT(answers(endings, 88), Each("6"));
  EXPECT_EQ(answers(endings, 256)[1], "tf.distribute.InputContext(input pipeline id 1, total: 3), 6 replicas");
}

TEST(Workers, APlainValueOfEachIsCombinedWhateverTheirReplicas) {
  for (const auto& replicas : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {3, 1}}) {
    SCOPED_TRACE(join("+", replicas));
    EXPECT_THAT(answers(run_cases("hosts", replicas, {"what=reduce"}), 97), Each("3 1.5"));
    EXPECT_THAT(answers(run_cases("hosts", replicas, {"what=gather"}), 97), Each("1,2"));
  }
}

TEST(Workers, OneWithoutAClusterIsLikeMirrored) {
  const auto alone = run_process("alone", {{LOCKSTEP_WORKER, "cases", "part=replicas", "replicas=2"}, {}}, 30s);
  EXPECT_EQ(alone.after("260"), "1 workers, 2 replicas") << alone;
  EXPECT_EQ(alone.after("284"), "[0,1][2,3]; [4,5][6,7]; [8,9][10,11]; [12,13][14]");
  EXPECT_EQ(alone.after("101"), "no resolver");
}

TEST(Workers, MakeTheirStrategyAnewAsOftenAsTheyLike) {
  const auto endings = run_cases("rebuilt", {1, 1, 1, 1, 1}, {"join=10"});
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.exit_code, 0) << ending;
    EXPECT_THAT(ending.lines(), Each("248 2,2,2,2"));
    EXPECT_EQ(ending.lines().size(), 20u);
  }
}

// Worker 1 has ended between two calls; the others are told at the second.
void expect_named_loss(const std::vector<Ending>& endings) {
  for (const std::size_t survivor : {0, 2}) {
    EXPECT_EQ(endings.at(survivor).error_code(), "kUnavailable") << endings[survivor];
    EXPECT_THAT(endings[survivor].after("error").value_or(""), HasSubstr("worker 1"));
    EXPECT_LT(endings[survivor].lasted, 10s);
  }
}

TEST(PeerFailure, BetweenTwoVariablesIsAnErrorOfTheOthers) {
  expect_named_loss(run_cases("failure", {1, 1, 1}, {"kind=variable"}));
  expect_named_loss(run_cases("failure", {1, 1, 1}, {"kind=variable", "engine=gloo"}));
}

TEST(PeerFailure, BetweenTwoReductionsIsAnErrorOfTheOthers) {
  expect_named_loss(run_cases("failure", {1, 1, 1}, {"kind=reduce"}));
  expect_named_loss(run_cases("failure", {1, 1, 1}, {"kind=reduce", "engine=gloo"}));
}

// Wherever each of them was: the step that did not fit is dropped by all, and made anew.
TEST(Workers, GoOnAfterACallThatDidNotFit) {
  for (const std::string replicas : {"replicas=1", "replicas=2"}) {
    std::string right;
    for (const std::string kind : {"none", "skip_step", "extra_reduce", "skip_reduce"}) {
      SCOPED_TRACE(kind + " " + replicas);
      Cluster cluster(2);
      cluster.start_all({"go_on", "kind=" + kind, replicas, "timeout=15", "join=30"});
      for (const auto& ending : cluster.join(40s)) {
        EXPECT_EQ(ending.exit_code, 0) << ending;
        EXPECT_EQ(ending.after("failures"), kind == "none" ? "0" : "1") << ending;
        EXPECT_EQ(ending.after("failure").value_or("none"), kind == "none" ? "none" : "kFailedPrecondition") << ending;
        if (right.empty()) right = ending.after("weights").value_or("none");
        EXPECT_EQ(ending.after("weights"), right) << ending;
      }
    }
  }
}

TEST(Workers, WeightsWrittenOutsideRunByAllAreWorkerZeros) {
  for (const std::string replicas : {"replicas=1", "replicas=2"}) {
    Cluster cluster(2);
    cluster.start_all({"outside_writes", "who=all", replicas, "timeout=15", "join=30"});
    const auto endings = cluster.join(40s);
    for (const auto& ending : endings) EXPECT_EQ(ending.exit_code, 0) << ending;
    EXPECT_EQ(endings.at(0).after("weights"), endings.at(1).after("weights"));
  }
}

TEST(Workers, WeightsWrittenOutsideRunByOneAreAnErrorOfAll) {
  for (const std::string engine : {"engine=auto", "engine=gloo"}) {
    Cluster cluster(2);
    cluster.start_all({"outside_writes", "who=chief", engine, "timeout=15", "join=30"});
    for (const auto& ending : cluster.join(40s)) {
      EXPECT_EQ(ending.error_code(), "kFailedPrecondition") << ending;
      EXPECT_THAT(ending.after("error").value_or(""), HasSubstr("weights that all workers must write alike outside run()"))
          << ending;
    }
  }
}

TEST(PeerFailure, StartedAgainAllReadTheSameValue) {
  const auto job = run_process(
      "lockstep run",
      {{LOCKSTEP_COMMAND, "run", "-n", "2", "--max-restarts", "1", LOCKSTEP_WORKER, "cases", "part=recovery"}, {}}, 60s);
  EXPECT_EQ(job.exit_code, 0) << job;
  EXPECT_THAT(job.lines(), ::testing::IsSupersetOf({"[worker 0] 253 7 on attempt 1", "[worker 1] 253 7 on attempt 1"})) << job;
}

}  // namespace
}  // namespace lockstep::testing
