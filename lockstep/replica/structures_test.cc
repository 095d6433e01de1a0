#include <ATen/ATen.h>

#include <latch>
#include <map>
#include <unordered_map>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

// Structures of tensors and numbers that do not fit together over the replicas, or only seem to.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;

int id(ReplicaContext& context) { return context.replica_id_in_sync_group(); }

TEST(Structures, AllReduceOfMapsWithDifferentKeysIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto reduce = [&] {
    strategy.run([](ReplicaContext& context) {
      const std::map<std::string, at::Tensor> mine = {{id(context) == 0 ? "loss" : "accuracy", at::ones({2})}};
      return context.all_reduce("sum", mine);
    });
  };
  EXPECT_THAT(reduce, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_EQ(strategy.run([](ReplicaContext& c) { return c.all_reduce("sum", 1); }).values(), (std::vector<int>{2, 2}));
}

TEST(Structures, ReduceOfMapsWithDifferentKeysIsRefused) {
  MirroredStrategy strategy(cpus(2));
  using Ordered = std::map<std::string, at::Tensor>;
  using Hashed = std::unordered_map<std::string, at::Tensor>;
  using Numbered = std::map<int, at::Tensor>;
  const auto one = at::ones({});
  EXPECT_THAT(
      [&] {
        strategy.reduce("sum", PerReplica<Ordered>({{{"a", one}}, {{"b", one}}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT(
      [&] {
        strategy.reduce("sum", PerReplica<Hashed>({{{"a", one}}, {{"b", one}}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT(
      [&] {
        strategy.reduce("sum", PerReplica<Numbered>({{{1, one}}, {{2, one}}}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(Structures, WholeNumbersAreSummedExactly) {
  MirroredStrategy strategy(cpus(2));
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ(strategy.reduce("sum", PerReplica<std::int64_t>({large, 0})), large);
  EXPECT_EQ(strategy.run([&](ReplicaContext& c) { return c.all_reduce("sum", id(c) == 0 ? large : 0); })[1], large);
}

// A transposed tensor is dense too, but its elements lie in another order.
TEST(Structures, InPlaceAllReduceAddsElementsNotMemory) {
  MirroredStrategy strategy(cpus(2));
  const auto rows = at::arange(6, at::kFloat).reshape({2, 3});
  std::vector<at::Tensor> values = {rows.clone(), rows.t().contiguous().t()};
  const auto add = [&] {
    strategy.run([&](ReplicaContext& context) { context.all_reduce_("sum", values[static_cast<std::size_t>(id(context))]); });
  };
  if (const auto code = testing::code_of(add)) {
    EXPECT_EQ(*code, ErrorCode::kInvalidArgument);  // to refuse is right too
    return;
  }
  EXPECT_TRUE(at::equal(values[0], rows * 2));
  EXPECT_TRUE(at::equal(values[1], rows * 2));
}

TEST(Structures, MergeResultWithTooFewComponentsIsRefused) {
  MirroredStrategy strategy(cpus(3));
  const auto merge = [&] {
    strategy.run([](ReplicaContext& context) { return context.merge_call([](Strategy&) { return PerReplica<int>({1}); }); });
  };
  EXPECT_THAT(merge, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(Structures, ATimeoutOfZeroMeansTheDefaultForTurnsToo) {
  MirroredStrategy strategy(cpus(2), {.communication = {.timeout_seconds = 0}});
  std::latch is_inside(1);
  std::latch may_leave(1);
  std::jthread other([&] {
    strategy.run([&](ReplicaContext& context) {
      if (id(context) == 0) {
        is_inside.count_down();
        may_leave.wait();
      }
    });
  });
  is_inside.wait();
  std::jthread releaser([&] { may_leave.count_down(); });
  EXPECT_EQ(testing::code_of([&] { strategy.run([] {}); }), std::nullopt);
}

}  // namespace
}  // namespace lockstep
