#include <future>
#include <tuple>

#include "tests/conformance/testing.h"

// ReplicaContext::all_reduce: values of all replicas become one that every replica gets.

namespace lockstep::testing {
namespace {

const PerReplica<at::Tensor> kRows({vec({39, 2}), vec({3, 41})});

PerReplica<at::Tensor> all_reduce(Strategy& strategy, const char* op, const PerReplica<at::Tensor>& values) {
  return strategy.run([&](ReplicaContext& context, at::Tensor x) { return context.all_reduce(op, x); }, values);
}

// d(c * all_reduce(x)) / dx in every replica.
PerReplica<at::Tensor> gradients(Strategy& strategy, const char* op, const PerReplica<at::Tensor>& factors) {
  return strategy.run(
      [&](ReplicaContext& context, at::Tensor factor) {
        const auto x = at::ones({}, at::kFloat).set_requires_grad(true);
        const auto y = context.all_reduce(op, x) * factor;
        return torch::autograd::grad({y}, {x})[0];
      },
      factors);
}

IndexedSlices slices(const Floats& rows, const Ints& indices, std::int64_t of) {
  return {vec(rows).unsqueeze(1), ints_vec(indices), {of, 1}};
}

TEST(AllReduce, SumReachesEveryReplica) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(all_reduce(strategy, "sum", scalars({1, 3}))), ElementsAre(4, 4));
  EXPECT_THAT(floats(all_reduce(strategy, "sum", kRows)), ElementsAre(42, 43, 42, 43));
}

TEST(AllReduce, MeanReachesEveryReplica) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(all_reduce(strategy, "mean", scalars({1, 3}))), ElementsAre(2, 2));
  EXPECT_THAT(floats(all_reduce(strategy, "mean", kRows)), ElementsAre(21, 21.5, 21, 21.5));
}

TEST(AllReduce, TheGradientOfASumIsTheSumOfTheGradients) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(gradients(strategy, "sum", scalars({1, 3}))), ElementsAre(4, 4));
}

TEST(AllReduce, TheGradientOfAMeanIsTheMeanOfTheGradients) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(floats(gradients(strategy, "mean", scalars({1, 3}))), ElementsAre(2, 2));
}

TEST(AllReduce, OnOneDeviceIsTheValueItself) {
  OneDeviceStrategy strategy("CPU:0");
  EXPECT_THAT(floats(all_reduce(strategy, "sum", scalars({4}))), ElementsAre(4));
  EXPECT_THAT(floats(gradients(strategy, "sum", scalars({4}))), ElementsAre(4));
  EXPECT_THAT(floats(all_reduce(strategy, "mean", scalars({5}))), ElementsAre(5));
}

TEST(AllReduce, ASumOfOnesCountsTheReplicas) {
  for (const int replicas : {1, 2, 3, 4}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto counted = strategy.run([](ReplicaContext& context) { return context.all_reduce("sum", scalar(1)); });
    EXPECT_EQ(floats(counted), Floats(static_cast<std::size_t>(replicas), replicas));
  }
}

TEST(AllReduce, AddsRowsOfIndexedSlices) {
  for (const int replicas : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto reduced = strategy.run([](ReplicaContext& context) { return context.all_reduce("sum", slices({1}, {0}, 5)); });
    for (const auto& result : reduced) EXPECT_EQ(floats(to_dense(result)), (Floats{static_cast<double>(replicas), 0, 0, 0, 0}));
  }
}

TEST(AllReduce, ReducesEveryLeafOfAStructure) {
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(n));
    const auto reduced = strategy.run([](ReplicaContext& context) {
      return context.all_reduce("sum", std::tuple(scalar(1), slices({1}, {0}, 2), scalar(2), slices({2}, {0}, 2)));
    });
    for (const auto& [one, sparse_one, two, sparse_two] : reduced) {
      EXPECT_EQ(floats(one), Floats({1.0 * n}));
      EXPECT_EQ(floats(to_dense(sparse_one)), Floats({1.0 * n, 0}));
      EXPECT_EQ(floats(two), Floats({2.0 * n}));
      EXPECT_EQ(floats(to_dense(sparse_two)), Floats({2.0 * n, 0}));
    }
  }
}

TEST(AllReduce, KeepsTheOrderOfSparseAndDenseValues) {
  MirroredStrategy strategy(cpus(2));
  const auto reduced = strategy.run([](ReplicaContext& context) {
    const bool is_first = context.replica_id_in_sync_group() == 0;
    const auto sparse = is_first ? slices({1}, {0}, 3) : slices({2, 3, 4}, {0, 1, 2}, 3);
    return context.all_reduce("mean", std::tuple(scalar(is_first ? 1 : 3), sparse, scalar(is_first ? 2 : 6)));
  });
  for (const auto& [first, sparse, last] : reduced) {
    EXPECT_THAT(floats(first), ElementsAre(2));
    EXPECT_THAT(floats(to_dense(sparse)), ElementsAre(1.5, 1.5, 2));
    EXPECT_THAT(floats(last), ElementsAre(4));
  }
}

TEST(AllReduce, TakesTheReplicasComponentOfAVariableSynchronisedOnRead) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Variable variable(0.0, {.synchronization = Sync::kOnRead, .aggregation = Aggregation::kSum});
  const auto reduced = strategy.run([&](ReplicaContext& context) {
    variable.assign(3.0 * context.replica_id_in_sync_group());
    return context.all_reduce("sum", variable.value());
  });
  EXPECT_THAT(floats(reduced), ElementsAre(3, 3));
  EXPECT_THAT(components(variable), ElementsAre(0, 3));
}

// What the caller gets when replica 1 does not come to replica 0's all_reduce before that has given up.
template <typename Value>
std::optional<ErrorCode> code_when_a_replica_is_late(Strategy& strategy, const Value& value,
                                                     const CommunicationOptions& options) {
  std::promise<void> gave_up;
  auto has_given_up = gave_up.get_future().share();
  return code_of([&] {
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == 1) {
        has_given_up.wait_for(std::chrono::seconds(60));
        return;
      }
      try {
        context.all_reduce("sum", value, options);
      } catch (const Error&) {
        gave_up.set_value();
        throw;
      }
    });
  });
}

template <typename Value>
void expect_deadline(const Value& value) {
  const CommunicationOptions options{.timeout_seconds = 0.1};
  MirroredStrategy patient(cpus(2));
  EXPECT_EQ(code_when_a_replica_is_late(patient, value, options), ErrorCode::kDeadlineExceeded);
  MirroredStrategy hasty(cpus(2), {.communication = options});
  EXPECT_EQ(code_when_a_replica_is_late(hasty, value, {}), ErrorCode::kDeadlineExceeded);
}

TEST(AllReduce, OfDenseValuesFailsWhenAReplicaDoesNotComeInTime) {
  expect_deadline(scalar(1));
  expect_deadline(std::vector<at::Tensor>{scalar(1), scalar(2)});
}

TEST(AllReduce, OfSparseValuesFailsWhenAReplicaDoesNotComeInTime) {
  expect_deadline(slices({1}, {0}, 2));
  expect_deadline(std::vector<IndexedSlices>{slices({1}, {0}, 2), slices({1}, {1}, 2)});
}

}  // namespace
}  // namespace lockstep::testing
