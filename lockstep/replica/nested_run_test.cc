#include <ATen/ATen.h>

#include <atomic>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

// run() called by the function of a merge_call.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;

// A wait that should not be there ends as an error, not as a test that hangs.
const MirroredOptions kBounded{.communication = {.timeout_seconds = 10}};

int id(ReplicaContext& context) { return context.replica_id_in_sync_group(); }

TEST(NestedRun, ReachesAllReplicas) {
  MirroredStrategy strategy(cpus(3), kBounded);
  const auto results = strategy.run([&](ReplicaContext& context) {
    return context.merge_call([](Strategy& s) { return s.run([](ReplicaContext& inner) { return 10 * id(inner); }); });
  });
  EXPECT_EQ(results.values(), (std::vector<int>{0, 10, 20}));
}

TEST(NestedRun, MayHaveMeetingPointsOfItsOwn) {
  MirroredStrategy strategy(cpus(3), kBounded);
  const auto sums = strategy.run([&](ReplicaContext& context) {
    return context.merge_call(
        [](Strategy& s) { return s.run([](ReplicaContext& inner) { return inner.all_reduce("sum", id(inner) + 1); })[0]; });
  });
  EXPECT_EQ(sums.values(), (std::vector<int>{6, 6, 6}));
}

TEST(NestedRun, MayMergeWhileTheOuterMergeGoesOn) {
  MirroredStrategy strategy(cpus(3), kBounded);
  for (int round = 0; round < 50; ++round) {
    const auto results = strategy.run([&](ReplicaContext& context) {
      return context.merge_call(
          [](Strategy& s, const PerReplica<int>& outer) {
            const auto first = s.run([](ReplicaContext& inner) {
              return inner.merge_call([](Strategy&, const PerReplica<int>& v) { return v[0] + v[1] + v[2]; }, id(inner) + 1);
            });
            const auto second = s.run([](ReplicaContext& inner) { return id(inner); });
            return outer[2] + first[0] + first[1] + first[2] + second[2];
          },
          100 * id(context));
    });
    ASSERT_EQ(results.values(), (std::vector<int>{220, 220, 220})) << "round " << round;
  }
}

TEST(NestedRun, NestsAgain) {
  MirroredStrategy strategy(cpus(2), kBounded);
  const auto results = strategy.run([&](ReplicaContext& outer) {
    return outer.merge_call([](Strategy& s) {
      return s.run([](ReplicaContext& middle) {
        return middle.merge_call([](Strategy& t) { return t.run([](ReplicaContext& inner) { return id(inner) + 5; }); });
      });
    });
  });
  EXPECT_EQ(results.values(), (std::vector<int>{5, 6}));
}

TEST(NestedRun, FailureReachesTheCallerOfTheOuterRun) {
  MirroredStrategy strategy(cpus(3), kBounded);
  const auto fail = [&] {
    strategy.run([&](ReplicaContext& context) {
      context.merge_call([](Strategy& s) {
        s.run([](ReplicaContext& inner) {
          if (id(inner) == 1) throw Error(ErrorCode::kDataLoss, "inner failure");
        });
      });
    });
  };
  EXPECT_THAT(fail, ThrowsCode(ErrorCode::kDataLoss, "inner failure"));
  EXPECT_EQ(strategy.run([](ReplicaContext& c) { return c.all_reduce("sum", 1); }).values(), (std::vector<int>{3, 3, 3}));
}

TEST(NestedRun, FailureThatTheMergeFunctionCatchesLeavesTheOuterRunWhole) {
  MirroredStrategy strategy(cpus(3), kBounded);
  for (const int failing : {0, 1, 2}) {
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> caught{0};
      const auto results = strategy.run([&](ReplicaContext& context) {
        const int merged = context.merge_call([&](Strategy& s) {
          try {
            s.run([&](ReplicaContext& inner) {
              if (id(inner) == failing) throw std::runtime_error("inner failure");
              inner.barrier();
            });
          } catch (const std::runtime_error&) {
            ++caught;
          }
          return 7;
        });
        return context.all_reduce("sum", merged);
      });
      ASSERT_EQ(caught, 1) << "replica " << failing << ", round " << round;
      ASSERT_EQ(results.values(), (std::vector<int>{21, 21, 21})) << "replica " << failing << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace lockstep
