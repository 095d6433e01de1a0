#include <ATen/ATen.h>

#include <atomic>

#include "lockstep/ps/server_variables.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/conformance/testing.h"
#include "tests/support/server_cluster.h"

// Datasets of workers, and variables on servers that closures write from them.

namespace lockstep::testing {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

struct Job {
  explicit Job(int replicas = 1)
      : cluster(/*ps=*/1, /*workers=*/2, {.devices = cpus(replicas)}), strategy(cluster.chief()), coordinator(strategy) {}

  Variable zero() {
    const auto scope = strategy.scope();
    return Variable(scalar(0));
  }

  ServerCluster cluster;
  ParameterServerStrategy strategy;
  ClusterCoordinator coordinator;
};

// Adds the next number of a dataset, and returns it.
const auto kAddNext = remote_function("coordinator_data.add_next", [](Variable v, data::Iterator& it) {
  const auto next = next_element(it)[0].to(at::kFloat);
  v.assign_add(next);
  return next;
});

std::atomic<int> g_arrived = 0;

// Waits until so many closures run at the same time: then each is on a worker of its own.
void wait_for_others(int count) {
  const auto deadline = soon();
  ++g_arrived;
  while (g_arrived < count && !deadline.has_passed()) std::this_thread::yield();
}

TEST(CoordinatorOfAStrategy, IsMadeOnce) {
  Job job;
  const ClusterCoordinator again(job.strategy);
  EXPECT_TRUE(again == job.coordinator);
  EXPECT_EQ(again.num_workers(), 2U);
}

TEST(CoordinatorData, BeginsAgainWithEachIterator) {
  Job job;
  const auto v = job.zero();
  const auto dataset = job.coordinator.create_per_worker_dataset([] { return data::Dataset::range(1, 2); });
  for (int pass = 1; pass <= 2; ++pass) {
    const auto result = job.coordinator.schedule(kAddNext, v, dataset.make_iterator());
    job.coordinator.join(soon());
    EXPECT_EQ(result.get().item<float>(), 1);
    EXPECT_EQ(v.value().item<float>(), pass);
  }
}

TEST(CoordinatorData, IsUsedByManyClosuresBetweenJoins) {
  Job job;
  const auto v = job.zero();
  const auto iterator =
      job.coordinator.create_per_worker_dataset([] { return data::Dataset::from_tensor_slices(at::full({10}, 2.0F)); })
          .make_iterator();
  job.coordinator.join(soon());
  EXPECT_EQ(v.value().item<float>(), 0);
  for (int i = 0; i < 5; ++i) job.coordinator.schedule(kAddNext, v, iterator);
  job.coordinator.join(soon());
  EXPECT_EQ(v.value().item<float>(), 10);
  for (int i = 0; i < 5; ++i) job.coordinator.schedule(kAddNext, v, iterator);
  for (int i = 0; i < 3; ++i) job.coordinator.join(soon());
  EXPECT_EQ(v.value().item<float>(), 20);
  EXPECT_TRUE(job.coordinator.done());
}

// The function runs on the workers alone: its error is that of the closure that needs what it makes.
TEST(CoordinatorData, IsMadeWithoutVariables) {
  Job job;
  const auto iterator = job.coordinator
                            .create_per_worker_dataset([] {
                              const Variable made(2.0);
                              return data::Dataset::range(1, 2);
                            })
                            .make_iterator();
  job.coordinator.schedule(kAddNext, job.zero(), iterator);
  EXPECT_THAT([&] { job.coordinator.join(soon()); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "kInvalidArgument", "a function that makes a dataset"));
}

TEST(CoordinatorData, IsShuffledDifferentlyOnEachWorker) {
  Job job;
  const auto iterator =
      job.coordinator.create_per_worker_dataset([] { return data::Dataset::range(100).shuffle(100).batch(1); }).make_iterator();
  g_arrived = 0;
  std::vector<RemoteValue<Ints>> orders;
  for (int i = 0; i < 2; ++i)
    orders.push_back(job.coordinator.schedule(
        [](data::Iterator& it) {
          wait_for_others(2);
          Ints order;
          for (int k = 0; k < 100; ++k) order.push_back(next_element(it)[0].item<std::int64_t>());
          return order;
        },
        iterator));
  job.coordinator.join(soon());
  auto first = orders[0].get(), second = orders[1].get();
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
}

TEST(CoordinatorData, OfAFunctionIsDealtToTheReplicasOfAWorker) {
  for (const int replicas : {1, 2}) {
    Job job(replicas);
    const auto iterator = job.coordinator.create_per_worker_resource([] {
      return get_strategy()
          .distribute_datasets_from_function([](const InputContext&) { return data::Dataset::range(1, 11).batch(1); })
          .make_iterator();
    });
    const auto parts = job.coordinator.schedule(
        [](DistributedIterator& it) {
          std::vector<Ints> all;
          for (const auto& part : it.get_next()) all.push_back(ints(part[0]));
          return all;
        },
        iterator);
    job.coordinator.join(soon());
    std::vector<Ints> expected;
    for (int i = 0; i < replicas; ++i) expected.push_back({1 + i});
    EXPECT_EQ(parts.get(), expected);
  }
}

TEST(CoordinatorData, OfAStrategyIsReducedAndAdded) {
  for (const int replicas : {1, 2}) {
    Job job(replicas);
    const auto v = job.zero();
    const auto iterator = job.coordinator.create_per_worker_resource([] {
      auto& strategy = get_strategy();
      const auto data = data::Dataset::from_tensor_slices(at::full({1}, 2.0F)).repeat().batch(strategy.num_replicas_in_sync());
      return strategy.experimental_distribute_dataset(data).make_iterator();
    });
    const auto add = [](Variable a, DistributedIterator& it) {
      auto& strategy = get_strategy();
      const auto parts = strategy.run([](const data::Element& part) { return part[0].sum(); }, it.get_next());
      a.assign_add(strategy.reduce(ReduceOp::kMean, parts));
    };
    for (const float expected : {10.0F, 20.0F}) {
      for (int i = 0; i < 5; ++i) job.coordinator.schedule(add, v, iterator);
      job.coordinator.join(soon());
      EXPECT_EQ(v.value().item<float>(), expected);
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
