#include <thread>

#include "tests/conformance/testing.h"

// ReplicaContext::merge_call: all replicas pause, one function runs across them.

namespace lockstep::testing {
namespace {

TEST(MergeCall, WithNothingToDoLetsTheReplicasGoOn) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.run([](ReplicaContext& context) {
    context.merge_call([](Strategy&) {});
    return 0.0;
  });
  EXPECT_THAT(results.values(), ElementsAre(0.0, 0.0));
}

TEST(MergeCall, GivesEveryReplicaWhatItsFunctionComputes) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.run([](ReplicaContext& context) {
    return context.merge_call([](Strategy&) {
      const auto eleven = scalar(11);
      return eleven + 1;
    });
  });
  EXPECT_THAT(floats(results), ElementsAre(12, 12));
}

TEST(MergeCall, RunsOnceAcrossTheReplicasWithEverybodysArguments) {
  MirroredStrategy strategy(cpus(2));
  int calls = 0;
  const auto results = strategy.run([&](ReplicaContext& context) {
    return context.merge_call(
        [&](Strategy& s, const PerReplica<int>& ids) {
          ++calls;
          EXPECT_EQ(&s, &strategy);
          EXPECT_TRUE(in_cross_replica_context());
          return PerReplica<int>({ids[0] * 10, ids[1] * 10});
        },
        context.replica_id_in_sync_group() + 1);
  });
  EXPECT_THAT(results.values(), ElementsAre(10, 20));
  EXPECT_EQ(calls, 1);
}

TEST(MergeCall, FromAThreadOfTheReplicasOwnIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto codes = strategy.run([](ReplicaContext& context) {
    std::optional<ErrorCode> code;
    std::jthread([&] { code = code_of([&] { context.merge_call([](Strategy&) {}); }); }).join();
    return code;
  });
  EXPECT_THAT(codes.values(), ElementsAre(ErrorCode::kFailedPrecondition, ErrorCode::kFailedPrecondition));
}

TEST(MergeCall, MadeByOnlySomeReplicasIsAnErrorOnTheCaller) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(code_of([&] {
              strategy.run([](ReplicaContext& context) {
                if (context.replica_id_in_sync_group() == 0) context.merge_call([](Strategy&) {});
              });
            }),
            ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::testing
