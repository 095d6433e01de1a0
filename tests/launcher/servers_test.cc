#include "tests/launcher/command.h"
#include "tools/lockstep/backoff.h"

// `lockstep run --chief --ps N`: the chief leads, the others serve it. Note [jobs with parameter servers]

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::comes_true;
using ::testing::HasSubstr;
using testing::is_alive;
using testing::Launcher;
using testing::lockstep_command;
using ::testing::Not;
using testing::Scratch;

// Every start of a task adds its process id to a file with its name, "ps_1", and its TF_CONFIG to "ps_1.config". A server then
// runs "ps_1.do", where there is one, and waits for its end. The chief does what it is told, with these at hand:
//   starts TASK N      waits until it has been started N times, 10 s at most
//   pid TASK           its newest process
//   hears TEXT         waits until the launcher or a task has written it, 10 s at most
struct Servers : ::testing::Test {
  std::string program(const std::string& chief) const {
    return scratch.script("task", str("cd ", scratch.path(""), R"sh(
me=$(echo "$TF_CONFIG" | sed 's/.*"task": {"type": "\([a-z]*\)", "index": \([0-9]*\).*/\1_\2/')
attempt=$TORCHELASTIC_RESTART_COUNT
wait_until() {
  left=200
  until eval "$1"; do left=$((left - 1)); [ $left = 0 ] && exit 99; sleep 0.05; done
}
starts() { wait_until "[ \"\$(cat $1 2>/dev/null | wc -l)\" -ge $2 ]"; }
hears() { wait_until "grep -q '$1' output"; }
pid() { tail -n 1 $1; }
echo "$TF_CONFIG" >> $me.config
echo "attempt $attempt"
echo $$ >> $me
case $me in chief_0) : ;; *) [ -e $me.do ] && . ./$me.do; exec sleep 1000;; esac
)sh",
                                      chief, "\n"));
  }
  testing::Result run(const std::string& options, const std::string& chief) const {
    const auto code =
        lockstep_command(str("run --chief ", options, " ", program(chief), " > ", scratch.path("output"))).exit_code;
    return {code, scratch.read("output")};
  }
  void server_does(const std::string& server, const std::string& what) const {
    std::ofstream(scratch.path(server + ".do")) << what << "\n";
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::istringstream text(scratch.read(name));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  std::size_t starts(const std::string& task) const { return lines(task).size(); }

  const Scratch scratch;
};

TEST_F(Servers, TheJobEndsWithTheChief) {
  server_does("worker_1", "trap '' TERM; while :; do sleep 0.1; done");
  const auto result =
      run("--ps 2 --workers 2 --grace 0.5", "for t in ps_0 ps_1 worker_0 worker_1; do starts $t 1; done; echo trained");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("[chief 0] trained"), Not(HasSubstr("lockstep run:"))));
  for (const char* task : {"ps_0", "ps_1", "worker_0", "worker_1"}) {
    ASSERT_EQ(starts(task), 1U) << task;
    EXPECT_FALSE(is_alive(lines(task)[0])) << task;
  }
}

TEST_F(Servers, OneThatIsLostIsStartedAgainAloneAsItWas) {
  const auto result = run(str("--ps 2 --workers 2 --task-restarts 2 --log-dir ", scratch.path("logs")),
                          "for t in ps_0 ps_1 worker_0 worker_1; do starts $t 1; done\n"
                          "kill -9 $(pid worker_1); starts worker_1 2; kill -9 $(pid ps_0); starts ps_0 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("worker 1 has ended (signal 9 (Killed)); starts it again as attempt 1"), HasSubstr("(1 of 2)"),
                    HasSubstr("ps 0 has ended (signal 9 (Killed)); starts it again as attempt 1"), HasSubstr("(2 of 2)")));
  for (const char* task : {"ps_0", "worker_1"}) {
    ASSERT_EQ(starts(task), 2U) << task;
    const auto configs = lines(str(task, ".config"));
    EXPECT_EQ(configs[0], configs[1]);
    EXPECT_EQ(scratch.read(str("logs/", task, ".attempt_0.log")), "attempt 0\n");
    EXPECT_EQ(scratch.read(str("logs/", task, ".attempt_1.log")), "attempt 1\n");
  }
  for (const char* task : {"ps_1", "worker_0", "chief_0"}) EXPECT_EQ(starts(task), 1U) << task;
}

TEST_F(Servers, OneThatCannotBeStartedAgainIsMissed) {
  const auto none = run("--ps 1 --workers 2",
                        "starts ps_0 1; starts worker_0 1; kill -9 $(pid ps_0) $(pid worker_0)\n"
                        "hears 'worker 0 has ended'; hears 'ps 0 has ended'; echo trained");
  EXPECT_EQ(none.exit_code, 0) << none.output;
  EXPECT_THAT(none.output,
              AllOf(HasSubstr("worker 0 has ended (signal 9 (Killed)); the job goes on without it"),
                    HasSubstr("ps 0 has ended (signal 9 (Killed)); the job goes on without it"),
                    HasSubstr("the job goes on without it (--task-restarts is 0)"), HasSubstr("[chief 0] trained")));
}

TEST_F(Servers, TheBudgetIsTheJobs) {
  server_does("worker_0", "exit 0");
  const auto result = run("--ps 1 --workers 1 --task-restarts 1", "hears 'goes on without it'");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(starts("worker_0"), 2U);
  EXPECT_THAT(result.output, AllOf(HasSubstr("worker 0 has ended (exit code 0); starts it again as attempt 1"),
                                   HasSubstr("worker 0 has ended (exit code 0); the job goes on without it")));
}

TEST_F(Servers, AnEvaluatorThatEndedWellIsDone) {
  server_does("evaluator_0", "exit 0");
  const auto result = run("--ps 1 --workers 0 --evaluator --task-restarts 3", "starts evaluator_0 1; starts ps_0 1; sleep 0.5");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("lockstep run:")));
}

TEST_F(Servers, AChiefThatFailsIsStartedAgainAndFindsTheOthers) {
  const auto result =
      run("--ps 1 --workers 2 --max-restarts 2",
          "for t in ps_0 worker_0 worker_1; do starts $t 1; done\n"
          "[ $attempt = 0 ] && { kill -9 $(pid worker_0); hears 'goes on without it'; echo the reason; exit 7; }\n"
          "kill -0 $(pid ps_0) && kill -0 $(pid worker_1) && starts worker_0 2 && echo found them");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("chief 0 has ended (exit code 7); starts it again as attempt 1"),
                                   HasSubstr("(1 of 2), the others keep running"), HasSubstr("    the reason"),
                                   HasSubstr("[chief 0] found them"), Not(HasSubstr("starts all tasks"))));
  EXPECT_EQ(starts("chief_0"), 2U);
  EXPECT_EQ(starts("worker_0"), 2U);  // it was missing, and came with the chief
  EXPECT_EQ(starts("worker_1"), 1U);
  EXPECT_EQ(starts("ps_0"), 1U);
}

TEST_F(Servers, WithoutAParameterServerAllAreStartedAgain) {
  const auto result =
      run(str("--ps 2 --workers 1 --max-restarts 1 --task-restarts 1 --log-dir ", scratch.path("logs")),
          "for t in ps_0 ps_1 worker_0; do starts $t 1; done; [ $attempt = 0 ] || exit 0\n"
          "kill -9 $(pid worker_0); starts worker_0 2; kill -9 $(pid ps_1); hears 'goes on without it'; exit 7");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("chief 0 failed first: exit code 7"), HasSubstr("starts all tasks again (1 of 1)")));
  EXPECT_EQ(scratch.read("logs/worker_0.attempt_1.log"), "attempt 1\n");  // not written over
  EXPECT_TRUE(std::filesystem::exists(scratch.path("logs/chief_0.attempt_2.log")));
}

TEST_F(Servers, AChiefThatFailsForGoodEndsTheJob) {
  const auto result =
      run("--ps 1 --workers 1 --max-restarts 1 --task-restarts 5", "starts ps_0 1; starts worker_0 1; echo the reason; exit 7");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("(1 of 1), the others keep running"),
                                   HasSubstr("chief 0 failed first: exit code 7"), HasSubstr("    the reason")));
  EXPECT_EQ(starts("chief_0"), 2U);
  EXPECT_EQ(starts("ps_0"), 1U);
  EXPECT_FALSE(is_alive(lines("ps_0")[0]));
  EXPECT_FALSE(is_alive(lines("worker_0")[0]));
}

TEST_F(Servers, AChiefThatWasToldToGoHasNotFailed) {
  const auto ended = run("--ps 1 --workers 1", "starts ps_0 1; exit 42");
  EXPECT_EQ(ended.exit_code, 42) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("saved and ended because it was told to"), Not(HasSubstr("failed"))));
  const auto again = run("--ps 1 --workers 1 --max-restarts 1", "starts ps_0 2; [ $attempt = 1 ] || exit 42");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(starts("ps_0"), 2U);  // one in each job
}

// What the chief saves is on the servers.
TEST_F(Servers, ALauncherThatIsToldToGoEndsTheServersAfterTheChief) {
  server_does("ps_0", "trap 'echo x >> told; exit 0' TERM; while :; do sleep 0.05; done");
  Launcher launcher(
      {"run", "--chief", "--ps", "1", "--task-restarts", "5",
       program("trap 'sleep 0.7; [ ! -e told ] && kill -0 $(pid ps_0) && kill -0 $(pid worker_0) && exit 42; exit 1' "
               "TERM; starts ps_0 1; starts worker_0 1; echo x > ready; while :; do sleep 0.05; done")},
      scratch.path("output"));
  ASSERT_TRUE(comes_true([&] { return !scratch.read("ready").empty(); }));
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 42) << scratch.read("output");
  EXPECT_EQ(scratch.read("told"), "x\n");
  EXPECT_THAT(scratch.read("output"), AllOf(HasSubstr("passes Terminated on to the chief"), Not(HasSubstr("has ended"))));
  EXPECT_FALSE(is_alive(lines("worker_0")[0]));
}

TEST_F(Servers, WithoutAChiefNothingIsStartedAlone) {
  server_does("ps_0", "exit 3");
  const auto result = lockstep_command(str("run --ps 1 --workers 1 ", program("")));
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("ps 0 failed first: exit code 3"));
  const auto wrong = lockstep_command("run --ps 1 --task-restarts 1 true");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--task-restarts is for jobs with --ps and --chief"));
}

TEST(RestartBackoff, DoublesForTasksThatEndAtOnce) {
  const tool::Backoff::Clock::time_point begin;
  tool::Backoff backoff(begin);
  auto now = begin;
  for (const auto pause : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) {
    const auto next = backoff.next_start(now);
    EXPECT_EQ(next - now, pause);
    now = next;
  }
}

TEST(RestartBackoff, OneThatRanForLongIsStartedAtOnce) {
  const tool::Backoff::Clock::time_point begin;
  tool::Backoff backoff(begin);
  EXPECT_EQ(backoff.next_start(begin), begin + 1s);
  EXPECT_EQ(backoff.next_start(begin + 1s + 1500ms), begin + 3s);  // two seconds after its start
  EXPECT_EQ(backoff.next_start(begin + 40s), begin + 40s);
  EXPECT_EQ(backoff.next_start(begin + 40s), begin + 42s);
}

}  // namespace
}  // namespace lockstep
