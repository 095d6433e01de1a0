#include "tools/lockstep/plan.h"

#include "tests/support/testing.h"
#include "tools/lockstep/arguments.h"
#include "tools/lockstep/hosts.h"

// From the command line to who starts what where, without starting anything.

namespace lockstep::tool {
namespace {

using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;

TEST(Hosts, AreNamesRangesAndAddresses) {
  EXPECT_THAT(parse_hosts("a,root@b:2"), ElementsAre(Host{"a", "a", 0}, Host{"root@b", "b", 2}));
  EXPECT_THAT(parse_hosts("n[1-2,5]:4"), ElementsAre(Host{"n1", "n1", 4}, Host{"n2", "n2", 4}, Host{"n5", "n5", 4}));
  EXPECT_THAT(parse_hosts("[fe80::1],me@[::2]:3,10.0.0.1"),
              ElementsAre(Host{"fe80::1", "fe80::1", 0}, Host{"me@::2", "::2", 3}, Host{"10.0.0.1", "10.0.0.1", 0}));
}

TEST(Hosts, AWrongPartIsNamed) {
  const auto expect = [](const char* text, const char* words) {
    EXPECT_THAT([&] { parse_hosts(text); }, ThrowsCode(ErrorCode::kInvalidArgument, words)) << text;
  };
  expect("", "no name");
  expect("a,,b", "no name");
  expect("a:many", "'many'");
  expect("a:0", "'0'");
  expect("a:2:3", "'2:3'");
  expect("-oProxyCommand=x", "no name of a host");
  expect("a b", "no name of a host");
  expect("a;reboot", "no name of a host");
  expect("a,a:2", "a second time");
  expect("n[1-", "host list");
  expect("n[1-99999]", "too many");
  expect("localhost,b", "means another machine");
}

std::vector<std::vector<PlannedTask>> plan(const std::vector<std::string>& words) {
  const auto arguments = parse_arguments(words);
  const auto shape = shape_of(arguments.run);
  std::vector<std::vector<int>> ports;
  int port = 1;
  for (const auto& tasks : place_tasks(shape)) {
    ports.emplace_back();
    for (std::size_t k = 0; k < tasks.size(); ++k) ports.back().push_back(port++);
  }
  return plan_tasks(shape, ports, {.secret = "s", .run_id = arguments.run.run_id, .master_port = arguments.run.master_port});
}

TEST(Plan, RanksGoFromHostToHost) {
  const auto planned = plan({"run", "--hosts", "a:2,b", "--ssh", "-n", "3", "--chief", "--ps", "3", "--evaluator", "./train"});
  ASSERT_EQ(planned.size(), 2U);
  EXPECT_EQ(planned[0].size(), 5U);  // chief, worker 0 and 1, ps 0 and 2
  EXPECT_EQ(planned[1].size(), 5U);  // worker 2 to 4, ps 1, evaluator
  const auto& last = planned[1][2];
  EXPECT_EQ(last.task, (Task{"worker", 4}));
  EXPECT_EQ(last.environment.at("RANK"), "5");
  EXPECT_EQ(last.environment.at("WORLD_SIZE"), "6");
  EXPECT_EQ(last.environment.at("LOCAL_RANK"), "2");
  EXPECT_EQ(last.environment.at("LOCAL_WORLD_SIZE"), "3");
  EXPECT_EQ(last.environment.at("GROUP_RANK"), "1");
  EXPECT_EQ(last.environment.at("MASTER_ADDR"), "a");
  EXPECT_EQ(last.environment.at("TF_CONFIG"),
            R"({"cluster": {"chief":["a:1"],"worker":["a:2","a:3","b:6","b:7","b:8"],"ps":["a:4","b:9","a:5"],)"
            R"("evaluator":["b:10"]}, "task": {"type": "worker", "index": 4}})");
}

TEST(Plan, TheFirstTasksPortCanBeGiven) {
  const auto planned = plan({"run", "--hosts", "[fe80::1],b", "--ssh", "--master-port", "29500", "./train"});
  EXPECT_EQ(planned[1][0].environment.at("MASTER_PORT"), "29500");
  EXPECT_THAT(planned[1][0].environment.at("TF_CONFIG"), ::testing::HasSubstr(R"("[fe80::1]:29500")"));
  EXPECT_EQ(planned[1][0].environment.at("MASTER_ADDR"), "fe80::1");
}

TEST(Plan, OnlyItsOwnVariablesAreItsOwn) {
  const auto planned = plan({"run", "--chief", "./train"});
  for (const auto& [name, value] : planned[0][0].environment) EXPECT_TRUE(is_planned_variable(name)) << name;
  EXPECT_FALSE(is_planned_variable("LD_PRELOAD"));
}

TEST(Arguments, WhatFollowsTheProgramIsItsOwn) {
  const auto arguments = parse_arguments({"run", "-n", "2", "./train", "--hosts", "x", "-n", "7", "--help"});
  EXPECT_EQ(arguments.run.workers, 2);
  EXPECT_THAT(arguments.run.command, ElementsAre("./train", "--hosts", "x", "-n", "7", "--help"));
  EXPECT_THAT(parse_arguments({"run", "--", "-odd"}).run.command, ElementsAre("-odd"));
}

TEST(Arguments, TorchrunsNamesAreKnown) {
  const auto run = parse_arguments({"run", "--nproc_per_node=4", "--nnodes=2", "--node_rank=1", "--rdzv_id=j",
                                    "--rdzv_endpoint=h:1", "--max_restarts=3", "--log_dir=l", "t"})
                       .run;
  EXPECT_EQ(run.workers, 4);
  EXPECT_EQ(run.rendezvous, (Address{"h", 1}));
  EXPECT_EQ(run.run_id, "j");
  EXPECT_EQ(run.log_dir, "l");
  const auto other = parse_arguments({"run", "--nnodes=2", "--master-addr=h", "t"}).run;
  EXPECT_EQ(other.rendezvous, (Address{"h", 29500}));
}

TEST(Arguments, WhatDoesNotFitTogetherIsNamed) {
  const auto expect = [](const std::vector<std::string>& words, const char* text) {
    EXPECT_THAT([&] { parse_arguments(words); }, ThrowsCode(ErrorCode::kInvalidArgument, text));
  };
  expect({"run", "--ssh", "t"}, "--ssh needs --hosts");
  expect({"run", "--hosts", "a", "t"}, "add --ssh");
  expect({"run", "--hosts", "a", "--ssh", "--nnodes", "2", "--rdzv", "h:1", "t"}, "one of them");
  expect({"run", "--hosts", "n[1-20]", "--ssh", "-n", "1000", "t"}, "20000 tasks");
  expect({"run", "--nnodes", "1:4", "t"}, "--nnodes");
  expect({"run", "--nnodes", "2", "--rdzv", "h:0", "t"}, "port");
  expect({"run", "--master-port", "70000", "t"}, "--master-port is 70000");
  expect({"run", "--grace", "-1", "t"}, "--grace");
  expect({"run", "--save-grace", "-1", "t"}, "--save-grace");
  expect({"fly"}, "fly");
  EXPECT_EQ(parse_arguments({"run", "--help"}).command, Arguments::Command::kHelp);
}

}  // namespace
}  // namespace lockstep::tool
