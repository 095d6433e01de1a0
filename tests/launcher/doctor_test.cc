#include <nlohmann/json.hpp>

#include "lockstep/cluster/socket.h"
#include "tests/launcher/command.h"
#include "tools/lockstep/findings.h"
#include "tools/lockstep/machine.h"
#include "tools/lockstep/probe.h"

// `lockstep doctor`, under the launcher, alone, and in clusters that are not well.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using internal::Socket;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Launcher;
using testing::lockstep_command;
using ::testing::Not;
using testing::Scratch;
using testing::ThrowsCode;
using tool::Finding;
using tool::Verdict;

TEST(Doctor, FindsAClusterOnThisMachineGood) {
  const auto result = lockstep_command(str("run -n 3 ", LOCKSTEP_COMMAND, " doctor"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* check : {"names ", "port ", "registration ", "all tasks ", "open files ", "shared memory ", "cores "})
    EXPECT_THAT(result.output, HasSubstr(check));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("ok +connections +all 6 "));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("ok +memory of peers +all 6 "));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("latency +all 3 "));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("bandwidth +all 3 "));
  EXPECT_THAT(result.output, ::testing::ContainsRegex("ok +clocks +all 2 "));
}

TEST(Doctor, ChecksThisMachineWhenThereIsNoCluster) {
  const auto result = lockstep_command("doctor --json");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["good"], true);
  EXPECT_EQ(json["findings"][0]["check"], "cluster");
}

// A cluster of two whose tasks are started by hand, as `doctor` with a short deadline.
struct SickCluster : ::testing::Test {
  std::string tf_config(int index) const {
    return str(R"(TF_CONFIG='{"cluster": {"worker": [")", zero, R"(", ")", one, R"("]}, "task": {"type": "worker", "index": )",
               index, "}}'");
  }
  testing::Result doctor(int index, const std::string& more = "", const std::string& before = "") const {
    return testing::shell(str(before, " ", tf_config(index), " timeout 60 ", LOCKSTEP_COMMAND, " doctor ", more, " 2>&1"));
  }

  static int free_port() { return Socket::listen({"127.0.0.1", 0}).port(); }

  std::string zero = str("127.0.0.1:", free_port());
  std::string one = str("127.0.0.1:", free_port());
};

TEST_F(SickCluster, BothGiveTheSameAnswerAndOnlyTheFirstPrints) {
  testing::Result other;
  std::jthread thread([&] { other = doctor(1, "--json"); });
  const auto first = doctor(0, "--json");
  thread.join();
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_EQ(other.output, "");
  const auto json = nlohmann::json::parse(first.output);
  std::map<std::string, int> counts;
  for (const auto& finding : json["findings"]) ++counts[finding["check"]];
  EXPECT_EQ(counts["connections"], 2);
  EXPECT_EQ(counts["bandwidth"], 1);
}

TEST_F(SickCluster, WhoIsMissingIsNamedInTime) {
  testing::Result result;
  const auto seconds = testing::time_of([&] { result = doctor(0, "--timeout 0.5"); });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("FAILED"), HasSubstr("worker 1 (has not registered)"), HasSubstr("fix: start the missing")));
  EXPECT_LT(seconds.count(), 10);
  const auto lonely = doctor(1, "--timeout 0.5");
  EXPECT_EQ(lonely.exit_code, 1);
  EXPECT_THAT(lonely.output, HasSubstr(str("cannot reach the coordinator at ", zero)));
}

TEST_F(SickCluster, APortInUseIsNamed) {
  const auto held = Socket::listen({"127.0.0.1", 0});
  one = str("127.0.0.1:", held.port());
  const auto result = doctor(1, "--timeout 1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(::testing::ContainsRegex("FAILED +port"), HasSubstr(one), HasSubstr("fix: end what uses the port")));
}

TEST_F(SickCluster, ANameThatDoesNotResolveIsNamed) {
  one = "no-such-host.invalid:2222";
  const auto result = doctor(0, "--timeout 0.5");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output,
              AllOf(::testing::ContainsRegex("FAILED +names"), HasSubstr("'no-such-host.invalid' does not resolve")));
}

TEST_F(SickCluster, AnotherSecretIsRefused) {
  testing::Result other;
  std::jthread thread([&] { other = doctor(1, "--timeout 3", "LOCKSTEP_JOB_SECRET=wrong"); });
  const auto first = doctor(0, "--timeout 3", "LOCKSTEP_JOB_SECRET=right");
  thread.join();
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output,
              AllOf(::testing::ContainsRegex("FAILED +registration"), HasSubstr("its job secret is another one")));
}

TEST_F(SickCluster, FewOpenFilesAreNamedByTheFirst) {
  testing::Result other;
  std::jthread thread([&] { other = doctor(1, "", "ulimit -n 100;"); });
  const auto first = doctor(0);
  thread.join();
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(first.output, AllOf(::testing::ContainsRegex("ok +open files +worker 0"),
                                  ::testing::ContainsRegex("FAILED +open files +worker 1"), HasSubstr("fix: ulimit -n")));
}

TEST_F(SickCluster, AWrongDescriptionIsAFinding) {
  const auto broken = testing::shell(str("TF_CONFIG='{' ", LOCKSTEP_COMMAND, " doctor 2>&1"));
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.output, AllOf(HasSubstr("FAILED"), HasSubstr("TF_CONFIG")));
  EXPECT_EQ(doctor(2).exit_code, 1);
  EXPECT_THAT(doctor(2).output, HasSubstr("worker"));
  const auto unknown = testing::shell(str("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 ", LOCKSTEP_COMMAND, " doctor 2>&1"));
  EXPECT_THAT(unknown.output, HasSubstr("--coordinator HOST:PORT"));
  EXPECT_EQ(lockstep_command("doctor --timeout never").exit_code, 2);
  EXPECT_EQ(lockstep_command("doctor --coordinator here").exit_code, 2);
}

// A launcher that tells no other address than the coordinator's: tasks take free ports.
TEST(Doctor, NeedsOnlyTheFirstAddress) {
  const auto port = Socket::listen({"127.0.0.1", 0}).port();
  const auto start = [&](int rank) {
    return testing::shell(str("OMPI_COMM_WORLD_RANK=", rank, " OMPI_COMM_WORLD_SIZE=2 timeout 60 ", LOCKSTEP_COMMAND,
                              " doctor --coordinator 127.0.0.1:", port, " 2>&1"));
  };
  testing::Result other;
  std::jthread thread([&] { other = start(1); });
  const auto first = start(0);
  thread.join();
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(other.exit_code, 0) << other.output;
}

TEST(Probes, MeasureTheWayAndTheClock) {
  const tool::ProbeServer server({"127.0.0.1", 0});
  const auto stranger = Socket::connect({"127.0.0.1", server.port()}, Deadline::after(5s));
  const std::string garbage(100, 'x');
  stranger.send(garbage.data(), garbage.size(), Deadline::after(1s));
  const tool::Probe probe({"127.0.0.1", server.port()}, server.token(), Deadline::after(20s));
  const auto times = probe.ping(10);
  EXPECT_GT(times.round_trip, 0ns);
  EXPECT_LT(std::chrono::abs(times.clock_offset), 1s);
  EXPECT_GT(probe.rate_there(), 1e6);
  EXPECT_GT(probe.rate_back(), 1e6);
}

TEST(Probes, AreAnsweredToWhoKnowsTheToken) {
  const tool::ProbeServer server({"127.0.0.1", 0});
  const tool::Probe probe({"127.0.0.1", server.port()}, server.token() + 1, Deadline::after(20s));
  EXPECT_THAT([&] { probe.ping(1); }, ThrowsCode(ErrorCode::kUnavailable));
}

TEST(Findings, GoodOnesShareALineAndBadOnesHaveTheirOwn) {
  std::ostringstream out;
  tool::print_findings(out,
                       {{"port", "a", Verdict::kOk, "1"},
                        {"speed", "a - b", Verdict::kOk, "fast", "", 1},
                        {"speed", "a - c", Verdict::kOk, "slow", "", 2},
                        {"port", "b", Verdict::kFailed, "in use", "free it"}},
                       /*as_json=*/false);
  EXPECT_EQ(out.str(),
            "ok       port   a      1\n"
            "FAILED   port   b      in use\n"
            "         fix: free it\n"
            "ok       speed  all 2  at worst slow (a - c)\n");
}

TEST(Findings, TravelAsText) {
  const auto back = tool::findings_from(tool::to_text({{"a", "b", Verdict::kWarning, "c \xff", "d", 1.5}}));
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].verdict, Verdict::kWarning);
  EXPECT_EQ(back[0].badness, 1.5);
  EXPECT_THAT([] { tool::findings_from("[{}]"); }, ThrowsCode(ErrorCode::kDataLoss));
  EXPECT_THAT([] { tool::findings_from("garbage"); }, ThrowsCode(ErrorCode::kDataLoss));
}

TEST(Machines, CountTheCoresOfAllTheirTasks) {
  EXPECT_EQ(tool::check_cores("h", {{"k", "b", {0}, 0}, {"k", "b", {1}, 0}}).verdict, Verdict::kOk);
  EXPECT_EQ(tool::check_cores("h", {{"k", "b", {0, 1}, 0}, {"k", "b", {0, 1}, 0}}).verdict, Verdict::kOk);
  EXPECT_EQ(tool::check_cores("h", {{"k", "b", {0, 1}, 1.5}, {"k", "b", {0, 1}, 1.5}}).verdict, Verdict::kWarning);
  EXPECT_EQ(tool::check_cores("h", {{"k", "b", {0}, 0}, {"l", "b", {0}, 0}}).verdict, Verdict::kWarning);
}

}  // namespace
}  // namespace lockstep
