#include "lockstep/cluster/roles.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

const ClusterSpec kWithChief({{"chief", {"c:1"}}, {"worker", {"a:1", "b:1"}}, {"ps", {"p:1"}}});
const ClusterSpec kWorkers({{"worker", {"a:1", "b:1"}}});

TEST(Roles, AChiefLeadsElseWorkerZero) {
  EXPECT_TRUE(is_chief(kWithChief, "chief", 0));
  EXPECT_FALSE(is_chief(kWithChief, "worker", 0));
  EXPECT_TRUE(is_chief(kWorkers, "worker", 0));
  EXPECT_FALSE(is_chief(kWorkers, "worker", 1));
  EXPECT_TRUE(is_chief(kWorkers, "evaluator", 0));
  EXPECT_EQ(collective_leader(kWithChief, "worker", 0), "/job:chief/replica:0/task:0");
  EXPECT_EQ(collective_leader(kWorkers, "worker", 1), "/job:worker/replica:0/task:0");
  EXPECT_EQ(collective_leader(kWorkers, "evaluator", 0), "");
  EXPECT_EQ(coordination_leader(kWithChief), "/job:ps/replica:0/task:0");
}

TEST(Roles, TheChiefIsFirstAndWorkersFollow) {
  EXPECT_EQ(id_in_cluster(kWithChief, "chief", 0), 0);
  EXPECT_EQ(id_in_cluster(kWithChief, "worker", 1), 2);
  EXPECT_EQ(id_in_cluster(kWorkers, "worker", 1), 1);
  EXPECT_EQ(worker_count(kWithChief, "worker"), 3);
  EXPECT_EQ(worker_count(kWorkers, "worker"), 2);
  EXPECT_EQ(task_count(kWithChief, "ps"), 1);
  EXPECT_EQ(task_count(kWorkers, "ps"), 0);
}

TEST(Roles, WhatDoesNotFitIsNamed) {
  EXPECT_THAT([] { is_chief(kWorkers, "chief", 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "'chief'", "no such job"));
  EXPECT_THAT([] { is_chief(kWorkers, "worker", 2); }, ThrowsCode(ErrorCode::kInvalidArgument, "worker 2", "has 2"));
  EXPECT_THAT([] { is_chief(kWorkers, "boss", 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "'boss'"));
  EXPECT_THAT([] { worker_count(kWithChief, "ps"); }, ThrowsCode(ErrorCode::kInvalidArgument, "'ps'"));
  EXPECT_THAT([] { id_in_cluster(kWithChief, "ps", 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "'ps'"));
  const ClusterSpec two_chiefs({{"chief", {"a:1", "b:1"}}});
  EXPECT_THAT([&] { is_chief(two_chiefs, "chief", 0); }, ThrowsCode(ErrorCode::kInvalidArgument, "2 tasks in job 'chief'"));
  const ClusterSpec other({{"trainer", {"a:1"}}});
  EXPECT_THAT([&] { is_chief(other); }, ThrowsCode(ErrorCode::kInvalidArgument, "'trainer'"));
}

}  // namespace
}  // namespace lockstep
