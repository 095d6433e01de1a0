#include "tools/lockstep/ssh.h"

#include "tests/launcher/command.h"

// `lockstep run --hosts ... --ssh`, with a script in place of ssh that runs the command on this machine. Every address
// 127.x.y.z is this machine's.

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::comes_true;
using ::testing::HasSubstr;
using testing::is_alive;
using testing::Launcher;
using testing::lockstep_command;
using ::testing::Not;
using testing::Scratch;

// Like ssh, it relays the streams, and the remote command is in a session of its own: it outlives a killed ssh.
// It notes its own process id (it leads its group), its host and its options.
class FakeSsh {
 public:
  explicit FakeSsh(const Scratch& scratch)
      : path_(scratch.script("ssh", str("folder=", scratch.path(""), R"(
for last; do before=$host; host=$word; word=$last; done
echo $$ > $folder/ssh_$host
cd /
cat | setsid sh -c "$last" | cat
)"))) {}

  std::string options() const { return str("--ssh --ssh-command ", path_, " "); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(LockstepRunSsh, StartsTheTasksOfAllHosts) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto result = lockstep_command(
      str("run --hosts 127.0.0.2,127.0.0.3:2 ", ssh.options(), "--chief --ps 1 --evaluator ",
          R"(sh -c 'echo "${RANK:-none}/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR;$TF_CONFIG"; )",
          "if [ \"$RANK\" != 0 ]; then echo x >> ", scratch.path("others"), "; else until [ \"$(cat ", scratch.path("others"),
          " 2>/dev/null | wc -l)\" = 5 ]; do sleep 0.05; done; fi'"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr(R"([chief 0] 0/4 0/2 0 127.0.0.2;{"cluster": {"chief":["127.0.0.2:)"));
  EXPECT_THAT(result.output, HasSubstr("[worker 0] 1/4 1/2 0 127.0.0.2;"));
  EXPECT_THAT(result.output, HasSubstr("[worker 2] 3/4 1/2 1 127.0.0.2;"));
  EXPECT_THAT(result.output, HasSubstr("[ps 0] none/"));
  EXPECT_THAT(result.output, HasSubstr("[evaluator 0] none/"));
}

TEST(LockstepRunSsh, CarriesFolderVariablesAndArgumentsOver) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto folder = scratch.path("a folder's $name");
  std::filesystem::create_directory(folder);
  setenv("LOCKSTEP_TEST_ODD", "two\nlines, 'quotes', \"more\", $HOME, \xff and \\", 1);
  setenv("LOCKSTEP_TEST_EMPTY", "", 1);
  const auto result = testing::shell(str(
      "cd ", tool::shell_quoted(folder), " && timeout 60 ", LOCKSTEP_COMMAND, " run --hosts 127.0.0.2 ", ssh.options(),
      R"(sh -c 'pwd; printf "%s|" "$LOCKSTEP_TEST_ODD" "${LOCKSTEP_TEST_EMPTY-unset}" "$@"' sh "an 'argument'" "" '*' '$(x)')"));
  unsetenv("LOCKSTEP_TEST_ODD");
  unsetenv("LOCKSTEP_TEST_EMPTY");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr(str("[worker 0] ", folder, "\n")));
  EXPECT_THAT(result.output,
              HasSubstr("two\n[worker 0] lines, 'quotes', \"more\", $HOME, \xff and \\||an 'argument'||*|$(x)|"));
}

TEST(LockstepRunSsh, TheFirstFailureNamesItsHostAndEndsTheOthers) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto result = lockstep_command(
      str("run --hosts 127.0.0.2,127.0.0.3 ", ssh.options(), "sh -c 'if [ $RANK = 0 ]; then echo $$ > ", scratch.path("pid"),
          "; exec sleep 1000; fi; until [ -s ", scratch.path("pid"), " ]; do sleep 0.05; done; echo the reason; exit 7'"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("worker 1 on host 127.0.0.3 failed first: exit code 7"), HasSubstr("    the reason")));
  EXPECT_FALSE(is_alive(scratch.read("pid")));
}

TEST(LockstepRunSsh, StartsAgainOnAllHosts) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto result = lockstep_command(
      str("run --hosts 127.0.0.2,127.0.0.3 --max-restarts 2 --log-dir ", scratch.path("logs"), " ", ssh.options(),
          "sh -c 'echo try $TORCHELASTIC_RESTART_COUNT of $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("starts all tasks again (1 of 2)"));
  EXPECT_EQ(scratch.read("logs/worker_1.attempt_1.log"), "try 1 of 1\n");
}

// The chief on the first host, the server on it too, the workers on both. One host goes for good: the job goes on without it.
TEST(LockstepRunSsh, StartsSingleTasksAgainOnTheirHosts) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto starts = [&](int rank, int count) {
    return str("until [ \"$(cat ", scratch.path("starts_"), rank, " | wc -l)\" = ", count, " ]; do sleep 0.05; done\n");
  };
  const auto program = scratch.script(
      "task", str("echo $$ >> ", scratch.path("starts_"), "${RANK:-ps}\n[ \"$RANK\" = 0 ] || exec sleep 1000\n", starts(1, 1),
                  starts(2, 1), "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 7\nkill -9 $(cat ", scratch.path("starts_2"),
                  ")\n", starts(2, 2), "kill -9 -$(cat ", scratch.path("ssh_127.0.0.3"),
                  ")\nuntil grep -q 'goes on without it' ", scratch.path("output"), "; do sleep 0.05; done; echo trained\n"));
  const auto result =
      lockstep_command(str("run --hosts 127.0.0.2,127.0.0.3 --chief --ps 1 --max-restarts 1 --task-restarts 2 --log-dir ",
                           scratch.path("logs"), " ", ssh.options(), program, " > ", scratch.path("output")));
  const auto output = scratch.read("output");
  EXPECT_EQ(result.exit_code, 0) << output;
  EXPECT_THAT(
      output,
      AllOf(HasSubstr("chief 0 on host 127.0.0.2 has ended (exit code 7); starts it again as attempt 1"),
            HasSubstr("worker 1 on host 127.0.0.3 has ended (signal 9 (Killed)); starts it again as attempt 1"),
            HasSubstr("worker 1 on host 127.0.0.3 has ended (host 127.0.0.3 is lost: ssh ended with signal 9 (Killed)); "
                      "the job goes on without it")));
  EXPECT_EQ(scratch.read("logs/chief_0.attempt_1.log"), "trained\n");
}

// The others' tasks wait with their output, and go on when it is read.
TEST(LockstepRunSsh, AReaderThatPausesLosesNothing) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto result = testing::shell(str("timeout 60 ", LOCKSTEP_COMMAND, " run --hosts 127.0.0.2 ", ssh.options(),
                                         "seq 1 400000 2>&1 | (sleep 1; tail -n 1)"));
  EXPECT_EQ(result.output, "[worker 0] 400000\n");
}

// A job on two hosts whose tasks sleep, and their process ids.
struct Sleepers {
  explicit Sleepers(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"run", "--hosts", "127.0.0.2,127.0.0.3", "--ssh", "--ssh-command", ssh.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto wait_for_signal =
        str("echo $$ > ", scratch.path("pid"), "_$RANK; sleep 1000 & echo $! > ", scratch.path("child"), "_$RANK; wait");
    arguments.insert(arguments.end(), {"sh", "-c", wait_for_signal});
    launcher.emplace(arguments, scratch.path("output"));
  }
  bool have_started() const {
    return comes_true([&] { return !scratch.read("child_0").empty() && !scratch.read("child_1").empty(); });
  }
  bool have_ended() const {
    return comes_true([&] {
      for (const char* name : {"pid_0", "pid_1", "child_0", "child_1"})
        if (is_alive(scratch.read(name))) return false;
      return true;
    });
  }
  pid_t ssh_of(const std::string& host) const { return std::stoi(scratch.read("ssh_" + host)); }

  const Scratch scratch;
  const FakeSsh ssh{scratch};
  std::optional<Launcher> launcher;
};

TEST(LockstepRunSsh, AKilledLauncherLeavesNothingOnTheHosts) {
  Sleepers sleepers;
  ASSERT_TRUE(sleepers.have_started());
  sleepers.launcher->send(SIGKILL);
  EXPECT_TRUE(sleepers.have_ended());
}

TEST(LockstepRunSsh, SignalsReachTheHosts) {
  Sleepers sleepers;
  ASSERT_TRUE(sleepers.have_started());
  sleepers.launcher->send(SIGTERM);
  EXPECT_EQ(sleepers.launcher->wait(), 1);
  EXPECT_TRUE(sleepers.have_ended());
}

TEST(LockstepRunSsh, ALostConnectionIsNamedAndEndsTheTasksOnBothSides) {
  Sleepers sleepers;
  ASSERT_TRUE(sleepers.have_started());
  kill(-sleepers.ssh_of("127.0.0.3"), SIGKILL);
  EXPECT_EQ(sleepers.launcher->wait(), 1);
  EXPECT_TRUE(sleepers.have_ended());
  EXPECT_THAT(sleepers.scratch.read("output"),
              HasSubstr("worker 1 on host 127.0.0.3 failed first: host 127.0.0.3 is lost: ssh ended with signal 9"));
}

// A link that is down closes no connection: nothing comes any more.
TEST(LockstepRunSsh, SilenceIsALostConnectionForBothSides) {
  Sleepers sleepers({"--lost-after", "2"});
  ASSERT_TRUE(sleepers.have_started());
  const auto ssh = sleepers.ssh_of("127.0.0.3");
  kill(-ssh, SIGSTOP);
  EXPECT_EQ(sleepers.launcher->wait(), 1);
  EXPECT_TRUE(sleepers.have_ended());
  EXPECT_THAT(sleepers.scratch.read("output"), HasSubstr("host 127.0.0.3 is lost: nothing was heard of it for 2 s"));
}

TEST(LockstepRunSsh, WhatTheShellSaysBeforeTheNodeIsShown) {
  const Scratch scratch;
  const auto ssh =
      scratch.script("ssh", "for last; do :; done; echo Welcome to this host; echo beware >&2; exec sh -c \"$last\"\n");
  const auto result = lockstep_command(str("run --hosts 127.0.0.2 --ssh --ssh-command '", ssh, " -p 22' sh -c 'echo hello'"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("[host 127.0.0.2] Welcome to this host\n"), HasSubstr("[host 127.0.0.2] beware\n"),
                                   HasSubstr("[worker 0] hello\n")));
}

TEST(LockstepRunSsh, WhyAHostDoesNotAnswerIsSaid) {
  const Scratch scratch;
  const FakeSsh ssh(scratch);
  const auto expect = [](const std::string& arguments, int code, const std::string& words) {
    const auto result = lockstep_command(arguments);
    EXPECT_EQ(result.exit_code, code) << arguments << "\n" << result.output;
    EXPECT_THAT(result.output, HasSubstr(words));
  };
  const auto refusing = scratch.script("refusing", "echo 'Permission denied (publickey).' >&2; exit 255\n");
  expect(str("run --hosts 127.0.0.2 --ssh --ssh-command ", refusing, " true"), 1,
         "host 127.0.0.2 cannot be reached: ssh ended with exit code 255: Permission denied (publickey).");
  const auto chatting = scratch.script("chatting", "yes hello\n");
  expect(str("run --hosts 127.0.0.2 --ssh --ssh-command ", chatting, " true"), 1, "other things than a Lockstep node");
  const auto silent = scratch.script("silent", "exec sleep 1000\n");
  expect(str("run --hosts 127.0.0.2 --join-timeout 0.3 --ssh --ssh-command ", silent, " true"), 1,
         "host 127.0.0.2 has not answered in 0.3 s");
  expect("run --hosts 127.0.0.2 --ssh --ssh-command ./no_ssh true", 1, "cannot start './no_ssh'");
  expect(str("run --hosts 127.0.0.2,127.0.0.3 ", ssh.options(), "./no_such_program"), 1,
         "cannot start './no_such_program' (No such file");
  expect(str("run --hosts 127.0.0.2 --remote-lockstep /no/lockstep ", ssh.options(), "true"), 1, "/no/lockstep");
}

TEST(LockstepRunSsh, ThisMachineNeedsNoSsh) {
  const auto result = lockstep_command("run --hosts localhost:2 sh -c 'echo $RANK of $WORLD_SIZE'");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("[worker 0] 0 of 2"), HasSubstr("[worker 1] 1 of 2")));
}

TEST(Ssh, TheRemoteCommandIsOneQuotedWord) {
  const auto words = tool::ssh_command({"ssh -p 22", "/opt/o'x y/lockstep"}, {"root@b", "b", 1});
  ASSERT_EQ(words.size(), 5U);
  EXPECT_EQ(words[3], "root@b");
  EXPECT_THAT(words[4], ::testing::StartsWith(R"(exec '/opt/o'\''x y/lockstep' agent)"));
}

TEST(Ssh, ALoginsOwnVariablesStayAtHome) {
  setenv("SSH_AUTH_SOCK", "/somewhere", 1);
  setenv("LOCKSTEP_TEST_CARRIED", "yes", 1);
  const auto variables = tool::carried_variables();
  EXPECT_EQ(variables.count("SSH_AUTH_SOCK") + variables.count("HOME") + variables.count("PWD"), 0U);
  EXPECT_EQ(variables.at("LOCKSTEP_TEST_CARRIED"), "yes");
  unsetenv("SSH_AUTH_SOCK");
  unsetenv("LOCKSTEP_TEST_CARRIED");
}

}  // namespace
}  // namespace lockstep
