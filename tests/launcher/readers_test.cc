#include <fcntl.h>

#include "lockstep/cluster/socket.h"
#include "tests/launcher/command.h"

// A launcher whose output nobody reads, or that has none, does its work, and ends when it is told to.

namespace lockstep {
namespace {

using testing::comes_true;
using ::testing::HasSubstr;
using testing::is_alive;
using testing::Launcher;
using testing::lockstep_command;
using testing::Scratch;

// A pipe with a name that somebody has opened and does not read.
class UnreadPipe {
 public:
  explicit UnreadPipe(std::string path) : path_(std::move(path)) {
    mkfifo(path_.c_str(), 0600);
    reader_ = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  ~UnreadPipe() { close(reader_); }
  UnreadPipe(const UnreadPipe&) = delete;
  UnreadPipe& operator=(const UnreadPipe&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  int reader_ = -1;
};

// Writes far more than a pipe holds, then says so.
std::string chatter(const Scratch& scratch, const std::string& then) {
  return scratch.script("chatter", str("echo $$ > ", scratch.path("pid"), "_$RANK\nseq 1 30000\n", then, "\n"));
}

TEST(LockstepRunReaders, OneSignalEndsALauncherWhoseOutputNobodyReads) {
  const Scratch scratch;
  const UnreadPipe pipe(scratch.path("pipe"));
  Launcher launcher({"run", "-n", "2", "--grace", "0.5", chatter(scratch, "exec sleep 1000")}, pipe.path());
  ASSERT_TRUE(comes_true([&] { return !scratch.read("pid_0").empty() && !scratch.read("pid_1").empty(); }));
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_FALSE(is_alive(scratch.read("pid_0")));
  EXPECT_FALSE(is_alive(scratch.read("pid_1")));
}

TEST(LockstepRunReaders, ClosedDescriptorsAreNotTakenForOthers) {
  for (const auto* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    const auto good = testing::shell(str("timeout 30 ", LOCKSTEP_COMMAND, " run -n 2 sh -c 'echo a; exit 0' ", closed));
    EXPECT_EQ(good.exit_code, 0) << closed;
    const auto bad = testing::shell(str("timeout 30 ", LOCKSTEP_COMMAND, " run -n 2 sh -c 'echo a; exit 4' ", closed));
    EXPECT_EQ(bad.exit_code, 1) << closed;
  }
}

TEST(LockstepRunReaders, AFailureElsewhereIsNoticedThoughNobodyReads) {
  const Scratch scratch;
  const UnreadPipe pipe(scratch.path("pipe"));
  const auto port = internal::Socket::listen({"127.0.0.1", 0}).port();
  const auto node = [&](int rank) {
    return std::vector<std::string>{
        "run", "--nnodes", "2", "--grace", "1", "--node-rank", str(rank), "--rdzv", str("127.0.0.1:", port)};
  };
  auto zero = node(0);
  zero.push_back(chatter(scratch, "exec sleep 1000"));
  auto one = node(1);
  one.insert(one.end(), {"sh", "-c", str("until [ -s ", scratch.path("pid_0"), " ]; do sleep 0.05; done; sleep 0.3; exit 9")});
  Launcher first(zero, pipe.path());
  Launcher second(one, scratch.path("node_1"));
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(scratch.read("node_1"), HasSubstr("failed first: exit code 9"));
  EXPECT_TRUE(comes_true([&] { return !is_alive(scratch.read("pid_0")); }));
}

TEST(LockstepRunReaders, TheOthersHaveTheTimeToSayWhatTheySaw) {
  const auto result = lockstep_command(
      "run -n 2 sh -c '[ $RANK = 0 ] && exit 7; trap \"echo too soon; exit 1\" TERM; sleep 0.4; echo worker 0 is gone; exit "
      "1'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker 0 failed first: exit code 7"));
  EXPECT_THAT(result.output, HasSubstr("[worker 1] worker 0 is gone"));
}

TEST(LockstepRunReaders, ALogThatCannotBeWrittenIsNamedAndTheTasksGoOn) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("logs"));
  std::filesystem::create_symlink("/dev/full", scratch.path("logs/worker_0.attempt_0.log"));
  const auto result = lockstep_command(str("run --log-dir ", scratch.path("logs"), " sh -c 'echo one; sleep 0.1; echo two'"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("worker_0.attempt_0.log' cannot be written (No space left on device)"));
  EXPECT_THAT(result.output, HasSubstr("[worker 0] two"));
}

}  // namespace
}  // namespace lockstep
