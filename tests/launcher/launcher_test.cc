#include "tests/launcher/command.h"

// The command `lockstep run`, as a user starts it.

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::comes_true;
using ::testing::HasSubstr;
using testing::is_alive;
using testing::Launcher;
using testing::lockstep_command;
using ::testing::Not;
using testing::read_file;
using testing::Scratch;

TEST(LockstepRun, TellsEveryTaskWhoItIs) {
  // The chief waits for the others, which would be ended otherwise.
  const Scratch scratch;
  const auto file = scratch.path("others");
  const auto script =
      str("echo \"rank ${RANK:-none} of ${WORLD_SIZE:-none}; $TF_CONFIG\"; if [ \"$RANK\" != 0 ]; then echo x >> ", file,
          "; else until [ \"$(cat ", file, " 2>/dev/null | wc -l)\" = 4 ]; do sleep 0.05; done; fi");
  const auto result = lockstep_command(str("run -n 2 --chief --ps 1 --evaluator sh -c '", script, "'"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("[chief 0] rank 0 of 3; {\"cluster\": {\"chief\":[\"127.0.0.1:"));
  EXPECT_THAT(result.output, HasSubstr("[worker 1] rank 2 of 3; "));
  EXPECT_THAT(result.output, HasSubstr(R"("task": {"type": "worker", "index": 1}})"));
  EXPECT_THAT(result.output, HasSubstr("[ps 0] rank none of none; "));
  EXPECT_THAT(result.output, HasSubstr("[evaluator 0] rank none of none; "));
}

TEST(LockstepRun, TheFirstFailureIsShownAndTheOthersAreEnded) {
  const Scratch scratch;
  const auto pid_file = scratch.path("pid");
  const auto result = lockstep_command(str("run -n 2 sh -c 'if [ $RANK = 0 ]; then echo $$ > ", pid_file,
                                           "; exec sleep 1000; fi; while [ ! -s ", pid_file,
                                           " ]; do sleep 0.05; done; echo the reason; exit 7'"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("worker 1 failed first: exit code 7"), HasSubstr("    the reason")));
  EXPECT_FALSE(is_alive(read_file(pid_file)));
}

TEST(LockstepRun, ATaskThatNeverStopsWritingHidesNobody) {
  const auto result = lockstep_command("run -n 2 sh -c '[ $RANK = 0 ] && exec yes; sleep 0.3; exit 5' | tail -n 3");
  EXPECT_THAT(result.output, HasSubstr("worker"));
  const auto quiet = lockstep_command("run -n 2 sh -c '[ $RANK = 0 ] && exec yes; sleep 0.3; exit 5' > /dev/null");
  EXPECT_EQ(quiet.exit_code, 1);
}

TEST(LockstepRun, TasksDoNotReadTheTerminal) {
  const auto result = lockstep_command("run sh -c 'cat; echo done'");
  EXPECT_THAT(result.output, HasSubstr("[worker 0] done"));
}

TEST(LockstepRun, ASignalIsNamed) {
  const auto result = lockstep_command("run -n 1 sh -c 'kill -9 $$'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker 0 failed first: signal 9 (Killed)"));
}

TEST(LockstepRun, StartsAgainAsOftenAsAllowed) {
  const auto again = lockstep_command(
      "run -n 2 --max-restarts 3 sh -c 'echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ]'");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, AllOf(HasSubstr("starts all tasks again (2 of 3)"), Not(HasSubstr("(3 of 3)"))));
  const auto given_up = lockstep_command("run -n 1 --max-restarts 1 sh -c 'exit 1'");
  EXPECT_EQ(given_up.exit_code, 1);
  EXPECT_THAT(given_up.output, HasSubstr("(1 of 1)"));
}

TEST(LockstepRun, WritesAFileForEachTaskAndAttempt) {
  const Scratch scratch;
  const auto folder = scratch.path("logs");
  lockstep_command(str("run --max-restarts 1 --log-dir ", folder, "/new sh -c 'echo try $TORCHELASTIC_RESTART_COUNT; exit 1'"));
  EXPECT_EQ(read_file(folder + "/new/worker_0.attempt_0.log"), "try 0\n");
  EXPECT_EQ(read_file(folder + "/new/worker_0.attempt_1.log"), "try 1\n");
  lockstep_command(str("run -n 2 --log-dir ", folder, " sh -c 'echo I am $RANK'"));
  EXPECT_EQ(read_file(folder + "/worker_1.attempt_0.log"), "I am 1\n");
}

TEST(LockstepRun, ParameterServersEndWithTheTraining) {
  const auto result =
      lockstep_command(R"(run -n 1 --ps 1 sh -c 'case "$TF_CONFIG" in *\"ps\",*) exec sleep 1000;; esac; echo trained')");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("[worker 0] trained"));
}

TEST(LockstepRun, ATaskThatDoesNotEndIsKilledAfterTheGrace) {
  const auto result = lockstep_command(
      "run -n 2 --grace 0.2 sh -c 'if [ $RANK = 0 ]; then trap \"\" TERM; while :; do sleep 0.1; done; fi; sleep 0.3; exit 1'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker 1 failed first"));
}

TEST(LockstepRun, PassesSignalsOn) {
  const Scratch scratch;
  const auto file = scratch.path("trapped");
  Launcher launcher(
      {"run", "sh", "-c",
       str("trap 'echo got it >> ", file, "; exit 0' INT; echo ready > ", file, "; while :; do sleep 0.05; done")},
      scratch.path("output"));
  ASSERT_TRUE(comes_true([&] { return read_file(file) == "ready\n"; }));
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_EQ(read_file(file), "ready\ngot it\n");
}

// A task that has saved its training upon SIGTERM ends with 42.
TEST(LockstepRun, AJobThatWasToldToGoHasNotFailed) {
  const auto ended = lockstep_command("run -n 2 sh -c 'exit 42'");
  EXPECT_EQ(ended.exit_code, 42);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("saved and ended because it was told to"), Not(HasSubstr("failed"))));
  const auto again = lockstep_command("run -n 2 --max-restarts 1 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 42'");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, HasSubstr("starts all tasks again (1 of 1)"));
}

TEST(LockstepRun, OneThatSaysItWasToldToGoWhileOthersEndOtherwiseHasFailed) {
  const auto mixed = lockstep_command("run -n 2 sh -c '[ $RANK = 0 ] || exit 42'");
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_THAT(mixed.output, HasSubstr("worker 1 failed first: exit code 42"));
  const auto worse = lockstep_command("run -n 2 sh -c '[ $RANK = 0 ] && exit 42; sleep 0.3; exit 3'");
  EXPECT_EQ(worse.exit_code, 1);
  EXPECT_THAT(worse.output, HasSubstr("worker 1 failed first: exit code 3"));
}

// The grace of a failure, a second here, does not count for those that save.
TEST(LockstepRun, ALauncherThatIsToldToGoLetsItsTasksSave) {
  const Scratch scratch;
  const auto begin = [&](const std::string& save_grace) {
    return std::vector<std::string>{"run",
                                    "-n",
                                    "2",
                                    "--grace",
                                    "0.3",
                                    "--save-grace",
                                    save_grace,
                                    "--max-restarts",
                                    "1",
                                    "sh",
                                    "-c",
                                    str("trap 'sleep 1; echo x >> ", scratch.path("saved"), "; exit 42' TERM; echo x >> ",
                                        scratch.path("ready"), "; while :; do sleep 0.05; done")};
  };
  Launcher launcher(begin("20"), scratch.path("output"));
  ASSERT_TRUE(comes_true([&] { return scratch.read("ready") == "x\nx\n"; }));
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 42);
  EXPECT_EQ(scratch.read("saved"), "x\nx\n");
  EXPECT_THAT(scratch.read("output"), AllOf(HasSubstr("saved and ended because it was told to"), Not(HasSubstr("starts all"))));
  Launcher hasty(begin("0.3"), scratch.path("output"));
  ASSERT_TRUE(comes_true([&] { return scratch.read("ready") == "x\nx\nx\nx\n"; }));
  hasty.send(SIGTERM);
  EXPECT_EQ(hasty.wait(), 1);
  EXPECT_EQ(scratch.read("saved"), "x\nx\n");
}

TEST(LockstepRun, AKilledLauncherTakesItsTasksAndTheirChildrenWithIt) {
  const Scratch scratch;
  Launcher launcher({"run", "sh", "-c",
                     str("sleep 1000 & echo $! > ", scratch.path("child"), "; echo $$ > ", scratch.path("task"), "; wait")},
                    scratch.path("output"));
  ASSERT_TRUE(comes_true([&] { return !scratch.read("task").empty(); }));
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait(), -1);
  EXPECT_TRUE(comes_true([&] { return !is_alive(scratch.read("task")) && !is_alive(scratch.read("child")); }));
}

// What nobody reads yet must not keep the launcher from its work.
TEST(LockstepRun, TasksAreEndedThoughNobodyReadsTheOutput) {
  const Scratch scratch;
  const auto reader = scratch.script("reader", R"(i=0
until [ -s $1 ] && ! grep -q '^State:.[^Z]' /proc/$(cat $1)/status 2>/dev/null; do i=$((i + 1)); [ $i = 400 ] && break; sleep 0.05; done
[ $i = 400 ] && echo still there || echo ended
cat > /dev/null
)");
  const auto result = lockstep_command(
      str("run -n 2 sh -c '[ $RANK = 0 ] && echo $$ > ", scratch.path("pid"), " && exec yes; until [ -s ", scratch.path("pid"),
          " ]; do sleep 0.05; done; sleep 0.2; exit 5' 2> /dev/null | ", reader, " ", scratch.path("pid")));
  EXPECT_EQ(result.output, "ended\n");
}

TEST(LockstepRun, WrongUseIsNamed) {
  const auto expect = [](const char* arguments, int code, const char* words) {
    const auto result = lockstep_command(arguments);
    EXPECT_EQ(result.exit_code, code) << arguments;
    EXPECT_THAT(result.output, HasSubstr(words));
  };
  expect("", 2, "subcommand");
  expect("run", 2, "no program");
  expect("run -n 0 true", 2, "at least one worker");
  expect("run -n -3 true", 2, "negative");
  expect("run -n many true", 2, "many");
  expect("run -n 010 true", 2, "'010' is no whole number");
  expect("run -n 99999999999 true", 2, "'99999999999' is no whole number");
  expect("run --ps -1 true", 2, "--ps is -1");
  expect("run --grace nan true", 2, "it must be a number");
  expect("run --nnodes 2 --master-addr a --master-port 70000 true", 2, "port 70000");
  expect("run --fast true", 2, "'--fast'");
  expect("run --nnodes 2 true", 2, "--rdzv");
  expect("run --nnodes 2 --node-rank 2 --rdzv a:1 true", 2, "--node-rank is 2");
  expect("run --rdzv nowhere true", 2, "no port");
  expect("run --max-restarts -1 true", 2, "--max-restarts");
  expect("run --task-restarts -1 true", 2, "--task-restarts is -1");
  expect("run --log-dir /proc/nothing true", 2, "/proc/nothing");
  expect("run ./no_such_program", 1, "cannot start './no_such_program'");
  expect("run --help", 0, "--max-restarts");
  expect("inspect nowhere", 1, "no flight record in 'nowhere'");
  expect("inspect nowhere:", 2, "its port is not a number");
}

}  // namespace
}  // namespace lockstep
