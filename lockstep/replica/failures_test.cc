#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

// What happens to the others, and to the strategy, when one replica fails.

namespace lockstep {
namespace {

using testing::ThrowsCode;

using Clock = std::chrono::steady_clock;

class ReplicaFailure : public ::testing::TestWithParam<int> {
 protected:
  MirroredStrategy strategy_{{"CPU:0", "CPU:1", "CPU:2"}};

  // The planted exception arrives in under a second, and the strategy works afterwards.
  template <typename F>
  void expect_planted(const F& fn) {
    const auto start = Clock::now();
    EXPECT_THROW(strategy_.run(fn), std::domain_error);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
    const auto sums = strategy_.run([](ReplicaContext& context) { return context.all_reduce("sum", at::ones({})); });
    for (const auto& sum : sums) EXPECT_EQ(sum.template item<float>(), 3);
  }
};

TEST_P(ReplicaFailure, WhileTheOthersWaitInAnAllReduce) {
  expect_planted([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == GetParam()) throw std::domain_error("planted");
    context.all_reduce("sum", at::ones({}));
  });
}

TEST_P(ReplicaFailure, WhileTheOthersWaitInAMerge) {
  expect_planted([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == GetParam()) throw std::domain_error("planted");
    context.merge_call([](Strategy&) {});
  });
}

TEST_P(ReplicaFailure, WhileTheOthersJustRun) {
  expect_planted([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == GetParam()) throw std::domain_error("planted");
  });
}

INSTANTIATE_TEST_SUITE_P(EachReplica, ReplicaFailure, ::testing::Values(0, 1, 2));

TEST(ReplicaFailures, AMergeFunctionThatThrowsReachesTheCaller) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto fail = [](ReplicaContext& context) { context.merge_call([](Strategy&) { throw std::domain_error("planted"); }); };
  for (int round = 0; round < 20; ++round) EXPECT_THROW(strategy.run(fail), std::domain_error);
  EXPECT_EQ(strategy.run([](ReplicaContext& context) { return context.num_replicas_in_sync(); })[1], 2);
}

TEST(ReplicaFailures, AReplicaThatSkipsAMeetingPointIsNamed) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  for (const int skips : {0, 1}) {
    try {
      strategy.run([&](ReplicaContext& context) {
        context.barrier();
        if (context.replica_id_in_sync_group() != skips) context.all_reduce("sum", at::ones({}));
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(str("replica ", skips, " returned")));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(str("replica ", 1 - skips, " is at 'all_reduce'")));
    }
  }
}

TEST(ReplicaFailures, DifferentShapesAreRefusedAndNothingIsLost) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto reduce = [](ReplicaContext& context) {
    return context.all_reduce("sum", at::ones({2 + context.replica_id_in_sync_group()}));
  };
  for (int round = 0; round < 50; ++round) EXPECT_THAT([&] { strategy.run(reduce); }, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(ReplicaFailures, NotANumberPassesThrough) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto sums = strategy.run([](ReplicaContext& context) {
    return context.all_reduce("sum", at::full({}, context.replica_id_in_sync_group() == 0 ? NAN : 1.0));
  });
  EXPECT_TRUE(std::isnan(sums[1].item<float>()));
}

}  // namespace
}  // namespace lockstep
