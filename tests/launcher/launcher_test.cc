#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/testing.h"

// The command `lockstep run`, as a user starts it.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int exit_code = -1;
  std::string output;
};

// Runs `lockstep <arguments>` in a shell; standard error goes into the output too.
Result lockstep_command(const std::string& arguments) {
  const auto command = str("timeout 60 ", LOCKSTEP_COMMAND, " ", arguments, " 2>&1");
  std::FILE* pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (const auto count = std::fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, count);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// A file name that no other test uses.
std::string scratch(const std::string& name) { return str(::testing::TempDir(), "lockstep_launcher_", getpid(), "_", name); }

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_alive(const std::string& pid) { return !pid.empty() && kill(std::stoi(pid), 0) == 0; }

TEST(LockstepRun, TellsEveryTaskWhoItIs) {
  // Those that train wait for the other two, which would be ended otherwise.
  const auto file = scratch("others");
  const auto script =
      str("echo \"rank ${RANK:-none} of ${WORLD_SIZE:-none}; $TF_CONFIG\"; if [ -z \"$RANK\" ]; then echo x >> ", file,
          "; else until [ \"$(cat ", file, " 2>/dev/null | wc -l)\" = 2 ]; do sleep 0.05; done; fi");
  const auto result = lockstep_command(str("run -n 2 --chief --ps 1 --evaluator sh -c '", script, "'"));
  std::filesystem::remove(file);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("[chief 0] rank 0 of 3; {\"cluster\": {\"chief\":[\"127.0.0.1:"));
  EXPECT_THAT(result.output, HasSubstr("[worker 1] rank 2 of 3; "));
  EXPECT_THAT(result.output, HasSubstr(R"("task": {"type": "worker", "index": 1}})"));
  EXPECT_THAT(result.output, HasSubstr("[ps 0] rank none of none; "));
  EXPECT_THAT(result.output, HasSubstr("[evaluator 0] rank none of none; "));
}

TEST(LockstepRun, TheFirstFailureIsShownAndTheOthersAreEnded) {
  const auto pid_file = scratch("pid");
  const auto result = lockstep_command(str("run -n 2 sh -c 'if [ $RANK = 0 ]; then echo $$ > ", pid_file,
                                           "; exec sleep 1000; fi; while [ ! -s ", pid_file,
                                           " ]; do sleep 0.05; done; echo the reason; exit 7'"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("worker 1 failed first: exit code 7"), HasSubstr("    the reason")));
  EXPECT_FALSE(is_alive(read_file(pid_file)));
  std::filesystem::remove(pid_file);
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
  const auto folder = scratch("logs");
  lockstep_command(str("run --max-restarts 1 --log-dir ", folder, "/new sh -c 'echo try $TORCHELASTIC_RESTART_COUNT; exit 1'"));
  EXPECT_EQ(read_file(folder + "/new/worker_0.attempt_0.log"), "try 0\n");
  EXPECT_EQ(read_file(folder + "/new/worker_0.attempt_1.log"), "try 1\n");
  lockstep_command(str("run -n 2 --log-dir ", folder, " sh -c 'echo I am $RANK'"));
  EXPECT_EQ(read_file(folder + "/worker_1.attempt_0.log"), "I am 1\n");
  std::filesystem::remove_all(folder);
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

// Starts the launcher by itself and gives its process id.
pid_t start_launcher(const std::string& script) {
  const auto launcher = fork();
  if (launcher != 0) return launcher;
  std::freopen("/dev/null", "w", stdout);
  std::freopen("/dev/null", "w", stderr);
  execl(LOCKSTEP_COMMAND, "lockstep", "run", "-n", "1", "sh", "-c", script.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

bool comes_true(const std::function<bool()>& condition) {
  for (int round = 0; round < 400; ++round) {
    if (condition()) return true;
    std::this_thread::sleep_for(25ms);
  }
  return false;
}

TEST(LockstepRun, PassesSignalsOn) {
  const auto file = scratch("trapped");
  const auto launcher = start_launcher(
      str("trap 'echo got it >> ", file, "; exit 0' INT; echo ready > ", file, "; while :; do sleep 0.05; done"));
  ASSERT_TRUE(comes_true([&] { return read_file(file) == "ready\n"; }));
  kill(launcher, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(read_file(file), "ready\ngot it\n");
  std::filesystem::remove(file);
}

TEST(LockstepRun, AKilledLauncherTakesItsTasksWithIt) {
  const auto file = scratch("task_pid");
  const auto launcher = start_launcher(str("echo $$ > ", file, "; exec sleep 1000"));
  ASSERT_TRUE(comes_true([&] { return !read_file(file).empty(); }));
  const auto task = read_file(file);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return !is_alive(task); }));
  std::filesystem::remove(file);
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
  expect("run --fast true", 2, "'--fast'");
  expect("run --nnodes 2 true", 2, "--rdzv");
  expect("run --nnodes 2 --node-rank 2 --rdzv a:1 true", 2, "--node-rank is 2");
  expect("run --rdzv nowhere true", 2, "no port");
  expect("run --max-restarts -1 true", 2, "--max-restarts");
  expect("run --log-dir /proc/nothing true", 2, "/proc/nothing");
  expect("run ./no_such_program", 1, "cannot start './no_such_program'");
  expect("run --help", 0, "--max-restarts");
  expect("inspect nowhere", 2, "no port");
}

TEST(LockstepRun, SeveralNodesGetTorchrunsVariables) {
  const auto result = lockstep_command(
      "run -n 2 --nnodes 3 --node-rank 1 --rdzv 10.0.0.1:2222 sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT "
      "${TF_CONFIG:-no TF_CONFIG}'");
  EXPECT_THAT(result.output, HasSubstr("[worker 3] 3/6 10.0.0.1:2222 no TF_CONFIG"));
}

}  // namespace
}  // namespace lockstep
