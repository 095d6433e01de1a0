#include "lockstep/cluster/socket.h"
#include "tests/launcher/command.h"

// `lockstep run --nnodes N --node-rank K --rdzv HOST:PORT`: several launchers, here on one machine.

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::comes_true;
using ::testing::HasSubstr;
using testing::is_alive;
using testing::Launcher;
using testing::lockstep_command;
using testing::Scratch;

struct Nodes : ::testing::Test {
  void SetUp() override { setenv("LOCKSTEP_JOB_SECRET", "the nodes' own", 1); }
  void TearDown() override { unsetenv("LOCKSTEP_JOB_SECRET"); }

  // Starts node `rank`; what it says goes to the file "node_<rank>".
  std::unique_ptr<Launcher> start(int rank, const std::string& script, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "run", "--nnodes", str(nodes), "--node-rank", str(rank), "--rdzv", str("127.0.0.1:", port), "--join-timeout", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"sh", "-c", script});
    return std::make_unique<Launcher>(arguments, scratch.path(str("node_", rank)));
  }
  std::string output(int rank) const { return scratch.read(str("node_", rank)); }
  void expect_good(const std::vector<Launcher*>& by_rank) const {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
      EXPECT_EQ(by_rank[rank]->wait(), 0) << output(static_cast<int>(rank));
  }

  int nodes = 2;
  const Scratch scratch;
  const int port = internal::Socket::listen({"127.0.0.1", 0}).port();
};

TEST_F(Nodes, BecomeOneCluster) {
  const std::string script =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $TORCHELASTIC_RUN_ID $MASTER_ADDR; echo $TF_CONFIG";
  const auto one = start(1, script, {"-n", "2", "--rdzv-id", "mine"});
  const auto zero = start(0, script, {"-n", "1", "--rdzv-id", "mine"});
  EXPECT_EQ(zero->wait(), 0) << output(0);
  EXPECT_EQ(one->wait(), 0) << output(1);
  EXPECT_THAT(output(0), HasSubstr("[worker 0] 0/3 0 0 mine 127.0.0.1"));
  EXPECT_THAT(output(1), AllOf(HasSubstr("[worker 1] 1/3 0 1 mine 127.0.0.1"), HasSubstr("[worker 2] 2/3 1 1 mine")));
  EXPECT_THAT(output(1), HasSubstr(R"([worker 2] {"cluster": {"worker":["127.0.0.1:)"));
}

TEST_F(Nodes, AFailureOnOneEndsAllAndIsNamedEverywhere) {
  const auto zero = start(0, str("echo $$ > ", scratch.path("pid"), "; exec sleep 1000"));
  const auto one = start(1, str("until [ -s ", scratch.path("pid"), " ]; do sleep 0.05; done; echo the reason; exit 7"));
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(output(0),
              AllOf(HasSubstr("worker 1 on node 1"), HasSubstr("failed first: exit code 7"), HasSubstr("    the reason")));
  EXPECT_THAT(output(1), HasSubstr("failed first: exit code 7"));
  EXPECT_FALSE(is_alive(scratch.read("pid")));
}

TEST_F(Nodes, StartAgainTogether) {
  const std::string script =
      "echo try $TORCHELASTIC_RESTART_COUNT of $RANK; [ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 2 ]";
  const auto zero = start(0, script, {"--max-restarts", "2"});
  const auto one = start(1, script, {"--log-dir", scratch.path("logs")});
  EXPECT_EQ(zero->wait(), 0) << output(0);
  EXPECT_EQ(one->wait(), 0) << output(1);
  EXPECT_THAT(output(0), AllOf(HasSubstr("[worker 0] try 2 of 0"), HasSubstr("again (2 of 2)")));
  EXPECT_EQ(scratch.read("logs/worker_1.attempt_2.log"), "try 2 of 1\n");
}

TEST_F(Nodes, ALostServerIsStartedAgainWhereItWas) {
  const auto pids = scratch.path("pids");
  const auto zero =
      start(0,
            str("[ \"$RANK\" = 0 ] || exec sleep 1000; until [ -s ", pids, " ]; do sleep 0.05; done; kill -9 $(cat ", pids,
                "); until [ $(cat ", pids, " | wc -l) = 2 ]; do sleep 0.05; done"),
            {"-n", "0", "--chief", "--ps", "1", "--task-restarts", "1"});
  const auto one = start(1, str("echo try $TORCHELASTIC_RESTART_COUNT of $RANK; echo $$ >> ", pids, "; exec sleep 1000"),
                         {"--log-dir", scratch.path("logs")});
  expect_good({zero.get(), one.get()});
  EXPECT_THAT(output(0), AllOf(HasSubstr("worker 0 on node 1"), HasSubstr("has ended (signal 9 (Killed)); starts it again")));
  EXPECT_THAT(output(1), AllOf(HasSubstr("[worker 0] try 0 of 1"), HasSubstr("[worker 0] try 1 of 1")));
  EXPECT_EQ(scratch.read("logs/worker_0.attempt_1.log"), "try 1 of 1\n");
}

TEST_F(Nodes, AKilledLauncherOfNodeZeroEndsTheOthers) {
  const auto script = str("echo $$ > ", scratch.path("pid"), "_$RANK; exec sleep 1000");
  const auto zero = start(0, script);
  const auto one = start(1, script);
  ASSERT_TRUE(comes_true([&] { return !scratch.read("pid_0").empty() && !scratch.read("pid_1").empty(); }));
  zero->send(SIGKILL);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(output(1), HasSubstr("the launcher of node 0 is lost"));
  EXPECT_TRUE(comes_true([&] { return !is_alive(scratch.read("pid_0")) && !is_alive(scratch.read("pid_1")); }));
}

TEST_F(Nodes, AKilledNodeIsNamed) {
  const auto script = str("echo $$ > ", scratch.path("pid"), "_$RANK; exec sleep 1000");
  const auto zero = start(0, script, {"--max-restarts", "1"});
  const auto one = start(1, script);
  ASSERT_TRUE(comes_true([&] { return !scratch.read("pid_0").empty() && !scratch.read("pid_1").empty(); }));
  one->send(SIGKILL);
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_THAT(output(0),
              AllOf(HasSubstr("worker 1 on node 1"), HasSubstr("is lost"), HasSubstr("cannot start again without node 1")));
  EXPECT_TRUE(comes_true([&] { return !is_alive(scratch.read("pid_0")) && !is_alive(scratch.read("pid_1")); }));
}

TEST_F(Nodes, WhoDoesNotFitIsRefusedAndTheOthersGoOn) {
  const auto zero = start(0, "echo done");
  const auto expect_refused = [&](const std::string& variables, const std::string& arguments, const std::string& words) {
    const auto result = testing::shell(str(variables, " timeout 30 ", LOCKSTEP_COMMAND, " run --rdzv 127.0.0.1:", port,
                                           " --join-timeout 20 ", arguments, " true 2>&1"));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr(words));
  };
  expect_refused("LOCKSTEP_JOB_SECRET=wrong", "--nnodes 2 --node-rank 1", "its job secret is another one");
  expect_refused("", "--nnodes 3 --node-rank 2", "its --nnodes is 3 and node 0's 2");
  {
    const auto garbage = internal::Socket::connect({"127.0.0.1", port}, Deadline::after(std::chrono::seconds(5)));
    garbage.send("GET / HTTP/1.1\r\n\r\n", 18, Deadline::after(std::chrono::seconds(1)));
    const auto one = start(1, "echo done");
    EXPECT_EQ(one->wait(), 0) << output(1);
  }
  EXPECT_EQ(zero->wait(), 0) << output(0);
}

TEST_F(Nodes, WhoIsMissingIsNamed) {
  const auto zero = start(0, "true", {"--join-timeout", "0.3"});
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_THAT(output(0), HasSubstr("missing are node 1"));
  const auto one = start(1, "true", {"--join-timeout", "0.3"});
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(output(1), HasSubstr(str("node 0 does not answer at 127.0.0.1:", port)));
}

TEST_F(Nodes, MayComeFarApart) {
  nodes = 3;
  const auto zero = start(0, "echo done", {"--lost-after", "2"});
  const auto one = start(1, "echo done", {"--lost-after", "2"});
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  const auto two = start(2, "echo done", {"--lost-after", "2"});
  expect_good({zero.get(), one.get(), two.get()});
}

TEST_F(Nodes, OneThatDiedBeforeAllCameMayComeAgain) {
  nodes = 3;
  const auto zero = start(0, "echo done");
  {
    const auto lost = start(1, "echo done");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    lost->send(SIGKILL);
    lost->wait();
  }
  ASSERT_TRUE(comes_true([&] { return output(0).find("waits for it again") != std::string::npos; }));
  const auto one = start(1, "echo done");
  const auto two = start(2, "echo done");
  expect_good({zero.get(), one.get(), two.get()});
}

TEST_F(Nodes, OneThatWaitsForOthersCanBeInterrupted) {
  nodes = 3;
  const auto zero = start(0, "echo done");
  const auto one = start(1, "echo done");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  one->send(SIGINT);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(output(1), HasSubstr("ends: Interrupt"));
  zero->send(SIGINT);
  EXPECT_EQ(zero->wait(), 1);
}

TEST_F(Nodes, AnInterruptOfNodeZeroIsNamedOnTheOthers) {
  const auto script = str("echo $$ > ", scratch.path("pid"), "_$RANK; exec sleep 1000");
  const auto zero = start(0, script);
  const auto one = start(1, script);
  ASSERT_TRUE(comes_true([&] { return !scratch.read("pid_0").empty() && !scratch.read("pid_1").empty(); }));
  zero->send(SIGTERM);
  EXPECT_EQ(zero->wait(), 1);
  EXPECT_EQ(one->wait(), 1);
  EXPECT_THAT(output(1), HasSubstr("node 0 was told to end"));
}

TEST_F(Nodes, TorchrunsNamesSayTheSame) {
  const auto arguments = [&](int rank) {
    return str("run --nproc_per_node=1 --nnodes=2 --node_rank=", rank, " --master_addr=127.0.0.1 --master_port=", port,
               " sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR'");
  };
  const auto one =
      std::make_unique<Launcher>(std::vector<std::string>{"run", "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1",
                                                          str("--master-port=", port), "true"},
                                 scratch.path("node_1"));
  const auto zero = lockstep_command(arguments(0));
  EXPECT_THAT(zero.output, HasSubstr("[worker 0] 0 of 2 at 127.0.0.1"));
  EXPECT_EQ(one->wait(), 0) << output(1);
  const auto alone = lockstep_command(str("run --nnodes 1 --master-port ", port, " sh -c 'echo at $MASTER_ADDR:$MASTER_PORT'"));
  EXPECT_THAT(alone.output, HasSubstr(str("at 127.0.0.1:", port)));
}

}  // namespace
}  // namespace lockstep
