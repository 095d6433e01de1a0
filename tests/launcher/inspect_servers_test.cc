#include "tools/lockstep/inspect_servers.h"

#include <nlohmann/json.hpp>

#include "lockstep/cluster/coordination.h"
#include "lockstep/ps/fields.h"
#include "tests/launcher/command.h"
#include "tests/support/free_ports.h"

// `lockstep inspect` of jobs with parameter servers, whose tasks are servers in this process that tell made-up numbers.

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct InspectServers : ::testing::Test {
  InspectServers() {
    std::vector<std::string> at;
    for (const int port : testing::free_ports(4)) at.push_back(str("127.0.0.1:", port));
    spec = ClusterSpec({{"chief", {at[0]}}, {"ps", {at[1]}}, {"worker", {at[2], at[3]}}});
  }

  void serve(const ps::TaskReport& report, const std::string& secret = "") {
    std::map<std::string, ps::Method> methods = {{ps::TaskReport::kMethod, ps::report_method([report] { return report; })},
                                                 {ps::methods::kDescribe,
                                                  {[](ps::Incoming&, ps::Outgoing& reply) {
                                                     ps::Described table{.bytes = 640, .state_bytes = 1280, .version = 17};
                                                     table.description.name = "table/part_1";
                                                     table.description.shape = {10, 16};
                                                     table.description.first_row = 10;
                                                     reply.fields = ps::to_bytes(ps::DescribeReply{{table}});
                                                   },
                                                   ps::HandlerKind::kQuick}}};
    methods[ps::methods::kGroupDescribe] = methods[ps::methods::kDescribe];
    ps::RpcOptions options;
    options.secret = secret;
    const auto address = Address::parse(spec.task_address(report.job, report.index), "");
    servers.push_back(std::make_unique<ps::RpcServer>(address, methods, options));
  }
  // All but worker 1.
  void serve_all(const std::string& secret = "") {
    auto chief = ps::report_of({"chief", 0}, spec);
    chief.coordinator = ps::CoordinatorStatistics{37, 4, 2, {"/job:worker/task:1"}};
    serve(chief, secret);
    auto server = ps::report_of({"ps", 0}, spec);
    server.store = ps::StoreStatistics{.variables = 3, .bytes = 1'280'000'000, .updates = 5000, .updates_per_second = 812.34};
    server.store->staleness = {10, 20, 5};
    serve(server, secret);
    auto worker = ps::report_of({"worker", 0}, spec);
    worker.worker = ps::closures::Status{.function = "train", .nanoseconds = 1'500'000'000, .finished = 99, .waiting = 6};
    serve(worker, secret);
  }
  testing::Result inspect(const std::string& what, const std::string& environment = "") const {
    return testing::shell(str("env -u LOCKSTEP_JOB_SECRET -u TF_CONFIG ", environment, " timeout 60 ", LOCKSTEP_COMMAND,
                              " inspect ", what, " 2>&1"));
  }

  ClusterSpec spec;
  std::vector<std::unique_ptr<ps::RpcServer>> servers;
};

TEST_F(InspectServers, OfTheChiefShowsTheWholeJob) {
  serve_all();
  const auto result = inspect(spec.task_address("chief", 0));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("37 closures wait, 4 are with workers, 1 of 2 workers are there; missing: "
                              "/job:worker/task:1"),
                    ContainsRegex("server +address +process +variables +bytes +updates/s"),
                    ContainsRegex("ps 0 +127.0.0.1:[0-9]+ +[0-9]+ +3 +1.3 GB +812 +5000"),
                    ContainsRegex("worker 0 .* 99 +0 +6 +0 +1.5 s +train"), ContainsRegex("worker 1 .* -  +is not there")));
  EXPECT_THAT(result.output, AllOf(ContainsRegex("updates missed +gradients"), ContainsRegex("\n0 +10 +####################\n"),
                                   ContainsRegex("\n2-3 +5 +##########\n")));
}

TEST_F(InspectServers, AsJson) {
  serve_all();
  const auto result = inspect(spec.task_address("chief", 0) + " --json");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto tasks = nlohmann::json::parse(result.output)["tasks"];
  ASSERT_EQ(tasks.size(), 4U);
  EXPECT_EQ(tasks[0]["coordinator"]["queued"], 37);
  EXPECT_EQ(tasks[1]["task"], "ps 0");
  EXPECT_EQ(tasks[1]["store"]["bytes"], 1'280'000'000);
  EXPECT_EQ(tasks[1]["store"]["staleness"], nlohmann::json({10, 20, 5}));
  EXPECT_EQ(tasks[2]["worker"]["closure"], "train");
  EXPECT_EQ(tasks[2]["worker"]["closure_seconds"], 1.5);
  EXPECT_EQ(tasks[3]["answers"], false);
}

TEST_F(InspectServers, OfAnotherTaskShowsWhatItKnows) {
  serve_all();
  const auto server = inspect(spec.task_address("ps", 0));
  EXPECT_EQ(server.exit_code, 0) << server.output;
  EXPECT_THAT(server.output, AllOf(ContainsRegex("ps 0 .* 812"), Not(HasSubstr("worker 0")),
                                   ContainsRegex("table/part_1 +\\[10, 16\\] +10 +640 B +1.3 KB +17")));
  const auto worker = inspect(spec.task_address("worker", 0));
  EXPECT_EQ(worker.exit_code, 0) << worker.output;
  EXPECT_THAT(worker.output, AllOf(HasSubstr("worker 0"), Not(HasSubstr("ps 0"))));
}

TEST_F(InspectServers, ShowsWhatAServerIsToReplicatedGroups) {
  auto server = ps::report_of({"ps", 0}, spec);
  server.store = ps::StoreStatistics();
  server.groups.push_back({.group = 0, .epoch = 4, .role = ps::GroupRole::kPrimary, .is_on_two = true});
  server.groups.push_back({.group = 1, .epoch = 3, .role = ps::GroupRole::kBackup});
  server.groups[0].store = {.variables = 2, .bytes = 640, .updates = 500};
  server.groups[1].store = {.variables = 1, .bytes = 320, .updates = 70};
  serve(server);
  const auto shown = inspect(spec.task_address("ps", 0));
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_THAT(shown.output, AllOf(ContainsRegex("ps 0 +127.0.0.1:[0-9]+ +[0-9]+ +3 +960 B +0 +570"),
                                  ContainsRegex("group +server +role +epoch +on two +variables"),
                                  ContainsRegex("\n0 +ps 0 +primary +4 +yes +2 +640 B +0 +500"),
                                  ContainsRegex("\n1 +ps 0 +backup +3 +no +1 +320 B +0 +70"),
                                  ContainsRegex("table/part_1 +\\[10, 16\\] +10 +640 B +1.3 KB +17 +1, backup")));
  const auto json = inspect(spec.task_address("ps", 0) + " --json");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  const auto groups = nlohmann::json::parse(json.output)["tasks"][0]["groups"];
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0]["role"], "primary");
  EXPECT_EQ(groups[0]["epoch"], 4);
  EXPECT_EQ(groups[1]["is_on_two"], false);
  EXPECT_EQ(groups[1]["store"]["updates"], 70);
  EXPECT_EQ(groups[1]["variables"][0]["name"], "table/part_1");
}

TEST_F(InspectServers, WithoutAnAddressAsksTheTasksOfTfConfig) {
  serve_all();
  servers.erase(servers.begin());  // the chief is gone
  const auto result = inspect("--json", str("TF_CONFIG='{\"cluster\": ", spec.to_json(), "}'"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const auto tasks = nlohmann::json::parse(result.output)["tasks"];
  EXPECT_EQ(tasks[0]["answers"], false);
  EXPECT_EQ(tasks[1]["store"]["updates"], 5000);
  const auto lost = inspect("");
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.output, HasSubstr("set TF_CONFIG"));
}

TEST_F(InspectServers, NeedsTheSecretOfTheJob) {
  serve_all("sesame");
  const auto stranger = inspect(spec.task_address("chief", 0));
  EXPECT_EQ(stranger.exit_code, 1);
  EXPECT_THAT(stranger.output, AllOf(HasSubstr("LOCKSTEP_JOB_SECRET"), Not(HasSubstr("closures"))));
  const auto friendly = inspect(spec.task_address("chief", 0), "LOCKSTEP_JOB_SECRET=sesame");
  EXPECT_EQ(friendly.exit_code, 0);
  EXPECT_THAT(friendly.output, HasSubstr("37 closures wait"));
}

// Its coordinator knows nothing of parameter servers, and is asked for its members, without the secret.
TEST_F(InspectServers, OfAJobWithoutParameterServersShowsItsMembers) {
  const ClusterSpec workers({{"worker", {"127.0.0.1:1"}}});
  const CoordinationServer coordinator({"127.0.0.1", 0}, workers, {{"worker", 0}}, {.secret = "sesame"});
  const CoordinationClient member({"127.0.0.1", coordinator.port()}, workers, {"worker", 0}, {.secret = "sesame"});
  const auto result = inspect(str("127.0.0.1:", coordinator.port()));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(ContainsRegex("task +host +process +step"), ContainsRegex("worker 0 ")));
}

TEST_F(InspectServers, SaysThatNobodyIsThere) {
  const auto result = inspect(spec.task_address("chief", 0) + " --timeout 1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr(spec.task_address("chief", 0)));
}

}  // namespace
}  // namespace lockstep
