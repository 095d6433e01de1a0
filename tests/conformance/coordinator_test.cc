#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <set>

#include "tests/support/closure_workers.h"
#include "tests/support/testing.h"

// The coordinator with workers in this process; its queue alone is tested beside it (ps/closure_queue_test.cc).

namespace lockstep::testing {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

// With a queue that is never full, and with one that almost always is.
void with_every_queue(int workers, const std::function<void(ClusterCoordinator&)>& check) {
  for (const std::size_t size : {ps::ClosureQueue::kCapacity, std::size_t{2}}) {
    SCOPED_TRACE(str("a queue of ", size));
    ClosureCluster cluster(workers, {.queue_size = size});
    check(*cluster);
  }
}

std::atomic<int> g_arrived = 0;

// Waits until so many closures run at the same time: then each is on a worker of its own.
void wait_for_others(int count) {
  const auto deadline = soon();
  ++g_arrived;
  while (g_arrived < count && !deadline.has_passed()) std::this_thread::yield();
}

std::int64_t number(const data::Element& element) { return element[0].item<std::int64_t>(); }

at::Tensor normal(const at::Tensor& x) { return x + 1; }
at::Tensor erroneous(const at::Tensor& x) {
  throw Error(ErrorCode::kInvalidArgument, str("a row of ", x.numel(), " is too long"));
}
const auto kNormal = remote_function("conformance.normal", normal);
const auto kErroneous = remote_function("conformance.erroneous", erroneous);
const auto kNext = remote_function("conformance.next", [](data::Iterator& it) { return number(next_element(it)); });

TEST(Coordinator, TellsADatasetFunctionTheWorkersIndex) {
  with_every_queue(5, [](ClusterCoordinator& coordinator) {
    const auto dataset = coordinator.create_per_worker_dataset([](const InputContext& input) {
      return data::Dataset::range(10).shard(input.num_input_pipelines, input.input_pipeline_id);
    });
    const auto iterator = dataset.make_iterator();
    g_arrived = 0;
    std::vector<RemoteValue<std::int64_t>> sums;
    for (int i = 0; i < 5; ++i)
      sums.push_back(coordinator.schedule(
          [](data::Iterator& it) {
            wait_for_others(5);
            const auto first = number(next_element(it));
            return first + number(next_element(it));
          },
          iterator));
    coordinator.join(soon());
    const auto fetched = coordinator.fetch(sums);
    EXPECT_EQ(std::multiset(fetched.begin(), fetched.end()), (std::multiset<std::int64_t>{5, 7, 9, 11, 13}));
  });
}

// A RemoteValue as an argument, and a lambda that captures, do not compile.
TEST(Coordinator, TakesNoRemoteValuesAndNoFunctionsThatWorkersCannotFind) {
  static_assert(!ps::is_sendable<RemoteValue<at::Tensor>>() && !ps::is_sendable<std::tuple<int, RemoteValue<int>>>());
  int captured = 0;
  const auto captures = [captured](int x) { return x + captured; };
  static_assert(!ps::WithoutState<decltype(captures)>);
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    struct Local {
      static int plain() { return 1; }
    };
    EXPECT_THAT([&] { coordinator.schedule(Local::plain); }, ThrowsCode(ErrorCode::kInvalidArgument, "remote_function"));
    EXPECT_TRUE(coordinator.done());
  });
}

// A dataset itself cannot be sent: it is given as the function that makes it.
TEST(Coordinator, GivesBatchesOfAPerWorkerDataset) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    const auto iterator =
        coordinator.create_per_worker_dataset([] { return data::Dataset::range(1, 11).batch(4); }).make_iterator();
    const auto first = coordinator.schedule([](data::Iterator& it) { return next_element(it)[0]; }, iterator);
    EXPECT_TRUE(at::equal(first.get(soon()), at::tensor({1L, 2L, 3L, 4L})));
    EXPECT_EQ(code_of([&] { iterator.local(); }), ErrorCode::kUnimplemented);
  });
}

TEST(Coordinator, TakesSeveralPerWorkerDatasets) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    const auto low = coordinator.create_per_worker_dataset([] { return data::Dataset::range(0, 5); }).make_iterator();
    const auto high = coordinator.create_per_worker_dataset([] { return data::Dataset::range(5, 10); }).make_iterator();
    const auto sum = coordinator.schedule(
        [](data::Iterator& a, data::Iterator& b) { return number(next_element(a)) + number(next_element(b)); }, low, high);
    EXPECT_EQ(sum.get(soon()), 5);
  });
}

TEST(Coordinator, ThrowsTheErrorOfAFunctionFromJoin) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    for (int i = 0; i < 3; ++i) coordinator.schedule(kNormal, at::ones({2}));
    coordinator.schedule(kErroneous, at::ones({2}));
    EXPECT_THAT([&] { coordinator.join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "a row of 2"));
  });
}

TEST(Coordinator, ThrowsTheErrorOfAFunctionFromALaterSchedule) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    for (int i = 0; i < 3; ++i) coordinator.schedule(kNormal, at::ones({2}));
    coordinator.schedule(kErroneous, at::ones({2}));
    const auto deadline = soon();
    EXPECT_THAT(
        [&] {
          while (!deadline.has_passed()) coordinator.schedule(kNormal, at::ones({2}));
        },
        ThrowsCode(ErrorCode::kInvalidArgument, "a row of 2"));
    coordinator.join(soon());
  });
}

TEST(Coordinator, ThrowsEachErrorOnce) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    coordinator.schedule(kErroneous, at::ones({2}));
    EXPECT_THAT([&] { coordinator.join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "a row of 2"));
    for (int i = 0; i < 3; ++i) coordinator.schedule(kNormal, at::ones({2}));
    coordinator.schedule(kErroneous, at::ones({7}));
    EXPECT_THAT([&] { coordinator.join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "a row of 7"));
    coordinator.join(soon());
  });
}

TEST(Coordinator, ThrowsWhatWasWrongWithAnInputThatIsUsedAndOnlyThen) {
  with_every_queue(2, [](ClusterCoordinator& coordinator) {
    const auto bad =
        coordinator.create_per_worker_resource([]() -> int { throw Error(ErrorCode::kNotFound, "no vocabulary"); });
    coordinator.schedule(kNormal, at::ones({2}));
    coordinator.join(soon());
    const auto user = coordinator.schedule([](int& value) { return value; }, bad);
    EXPECT_THAT([&] { coordinator.join(soon()); }, ThrowsCode(ErrorCode::kFailedPrecondition, "no vocabulary"));
    EXPECT_THAT([&] { user.get(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "no vocabulary"));
  });
}

TEST(Coordinator, GoesOnWithAnIteratorAfterAnError) {
  with_every_queue(1, [](ClusterCoordinator& coordinator) {
    const auto iterator = coordinator.create_per_worker_dataset([] { return data::Dataset::range(1, 100); }).make_iterator();
    EXPECT_EQ(coordinator.schedule(kNext, iterator).get(soon()), 1);
    coordinator.schedule(kErroneous, at::ones({2}));
    EXPECT_EQ(code_of([&] { coordinator.join(soon()); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(coordinator.schedule(kNext, iterator).get(soon()), 2);
  });
}

}  // namespace
}  // namespace lockstep::testing
