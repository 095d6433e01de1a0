#include "lockstep/collective/worker_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/collective/reduce_values.h"
#include "tests/support/worker_threads.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using testing::on_workers;

at::Tensor value_of(int replica, std::int64_t count, at::ScalarType dtype) {
  const auto numbers = at::arange(count, at::kDouble).remainder(13) * 0.37 + replica * 1.21;
  return dtype == at::kBool ? numbers.remainder(2) > 1 : numbers.to(dtype);
}

class WorkerGroupLayouts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(WorkerGroupLayouts, SumsHaveTheBitsOfOneProcess) {
  on_workers(GetParam(), [](WorkerGroup& group) {
    const auto& layout = group.layout();
    const int total = layout.total_replicas();
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kShort, at::kByte})
      for (const std::int64_t count : {0, 1, 77, 5000, 300'000}) {
        std::vector<at::Tensor> all;
        for (int r = 0; r < total; ++r) all.push_back(value_of(r, count, dtype));
        std::vector<std::vector<at::Tensor>> mine;
        const int first = layout.first_replica(layout.rank);
        for (int r = first; r < first + layout.local_replicas(); ++r)
          mine.push_back({all[static_cast<std::size_t>(r)], at::ones({2, 3})});
        std::vector<at::Tensor> sums = {at::empty_like(all[0]), at::empty({2, 3})};
        group.sum("sum", mine, sums);
        EXPECT_TRUE(at::equal(sums[0], sum_values(all))) << dtype << " " << count;
        EXPECT_TRUE(at::equal(sums[1], at::full({2, 3}, total)));
      }
  });
}

TEST_P(WorkerGroupLayouts, GatheredTensorsComeInReplicaOrder) {
  on_workers(GetParam(), [](WorkerGroup& group) {
    const auto& layout = group.layout();
    const int first = layout.first_replica(layout.rank);
    std::vector<at::Tensor> mine;
    for (int r = first; r < first + layout.local_replicas(); ++r) mine.push_back(at::full({r, 2}, r));
    const auto all = group.all_gather("gather", mine);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(layout.total_replicas()));
    for (int r = 0; r < layout.total_replicas(); ++r)
      EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(r)], at::full({r, 2}, r)));
    std::vector<at::Tensor> value = {at::full({3}, layout.rank), at::full({400'000}, layout.rank + 0.5)};
    group.broadcast("broadcast", value);
    EXPECT_TRUE(at::equal(value[0], at::full({3}, 0)));
    EXPECT_TRUE(at::equal(value[1], at::full({400'000}, 0.5)));
    const auto messages = group.exchange("exchange", std::string(layout.rank == 0 ? 9000 : 5, 'x'));
    EXPECT_EQ(messages[0].size(), 9000);
    EXPECT_EQ(messages.back().size(), layout.size() == 1 ? 9000 : 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkerGroupLayouts,
                         ::testing::Values(std::vector<int>{1, 1}, std::vector<int>{2, 1}, std::vector<int>{1, 2, 1},
                                           std::vector<int>{3, 2}));

TEST(WorkerGroup, CallsThatDoNotFitFailOnAllAndTheGroupStaysUsable) {
  on_workers({1, 1}, [](WorkerGroup& group) {
    const bool is_first = group.layout().rank == 0;
    std::vector<at::Tensor> out = {at::zeros({2})};
    const auto sum = [&](const at::Tensor& value) {
      const std::vector<std::vector<at::Tensor>> values = {{value}};
      std::vector<at::Tensor> result = {at::empty_like(value)};
      group.sum("sum", values, result);
      return result[0];
    };
    try {
      sum(at::ones({is_first ? 2 : 3}));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr("worker 1 at 'sum: 1 tensor, Float [3]'"));
    }
    std::uint64_t last = 0;
    try {
      if (is_first) group.barrier("here");
      else sum(at::ones({2}));
      ADD_FAILURE();
    } catch (const SharedFailure& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.message(), HasSubstr("worker 0 at 'here'"));
      last = error.number();
    }
    EXPECT_EQ(group.shared_failures(), 2);
    EXPECT_EQ(last, 2);
    EXPECT_TRUE(at::equal(sum(at::ones({2})), at::full({2}, 2)));
  });
}

TEST(WorkerGroup, TheFirstFailureIsKeptAndToldOnce) {
  on_workers({1, 1}, [](WorkerGroup& group) {
    int told = 0;
    group.on_abort([&](const Error&) { ++told; });
    group.abort(Error(ErrorCode::kUnavailable, "worker 7 is gone"));
    group.abort(Error(ErrorCode::kInternal, "something else"));
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        group.barrier("after");
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.message(), "worker 7 is gone");
      }
    }
    EXPECT_EQ(told, 1);
  });
}

// Whoever takes the hook back may then destroy what it uses.
TEST(WorkerGroup, TheHookHasEndedWhenTheGroupIsClosed) {
  on_workers({1, 1}, [](WorkerGroup& group) {
    std::atomic<bool> has_begun{false};
    std::atomic<bool> has_ended{false};
    group.on_abort([&](const Error&) {
      has_begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      has_ended = true;
    });
    const std::jthread aborts([&] { group.abort(Error(ErrorCode::kUnavailable, "worker 7 is gone")); });
    while (!has_begun) std::this_thread::yield();
    group.close(Error(ErrorCode::kCancelled, "over"));
    EXPECT_TRUE(has_ended);
  });
}

}  // namespace
}  // namespace lockstep
