#include <ATen/ATen.h>

#include "lockstep/ps/connections.h"
#include "lockstep/ps/embedding_lookup.h"
#include "lockstep/ps/per_worker_variable.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/conformance/testing.h"
#include "tests/support/server_cluster.h"

// What closures read of and write to variables on parameter servers, with one replica a worker and with several.

namespace lockstep::testing {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }

struct Job {
  explicit Job(int ps = 2, int replicas = 1, Partitioner partitioner = nullptr)
      : cluster(ps, /*workers=*/2, {.devices = cpus(replicas)}),
        strategy(cluster.chief(), std::move(partitioner)),
        coordinator(strategy) {}

  Variable variable(const at::Tensor& initial, const VariableOptions& options = {}) {
    const auto scope = strategy.scope();
    return Variable(initial, options);
  }
  // Schedules it and waits for it.
  template <typename F, typename... Args>
  auto run(const F& function, const Args&... args) {
    const auto result = coordinator.schedule(function, args...);
    coordinator.join(soon());
    return result.get();
  }

  ServerCluster cluster;
  ParameterServerStrategy strategy;
  ClusterCoordinator coordinator;
};

TEST(ParameterServerVariable, IsWrittenByClosures) {
  Job job;
  auto v1 = job.variable(scalar(0)), v2 = job.variable(scalar(1));
  job.run(
      [](Variable a, Variable b) {
        a.assign_add(0.1);
        b.assign_sub(0.2);
      },
      v1, v2);
  EXPECT_FLOAT_EQ(v1.value().item<float>(), 0.1F);
  EXPECT_FLOAT_EQ(v2.value().item<float>(), 0.8F);
  auto& client = job.strategy.variables()->client();
  EXPECT_EQ(client.describe(0).size() + client.describe(1).size(), 2U);
}

TEST(ParameterServerVariable, IsAssignedOutsideOfScope) {
  Job job;
  auto v = job.variable(scalar(1), {.aggregation = Aggregation::kSum});
  v.assign(3);
  EXPECT_EQ(v.value().item<float>(), 3);
}

TEST(ParameterServerVariable, TakesTheMeanOfWhatReplicasAddOnce) {
  Job job(1, 2);
  auto v = job.variable(scalar(1), {.aggregation = Aggregation::kMean});
  job.run([](Variable a) { get_strategy().run([&] { a.assign_add(scalar(2)); }); }, v);
  EXPECT_EQ(v.value().item<float>(), 3);
}

TEST(ParameterServerVariable, TakesTheSumOfWhatReplicasAssign) {
  for (const int replicas : {1, 2, 3}) {
    Job job(1, replicas);
    auto v = job.variable(scalar(0), {.aggregation = Aggregation::kSum});
    job.run([](Variable a) { get_strategy().run([&] { a.assign(scalar(replica_id() + 1)); }); }, v);
    EXPECT_EQ(v.value().item<float>(), static_cast<float>(replicas * (replicas + 1)) / 2);
  }
}

TEST(ParameterServerVariable, WithoutAnAggregationIsNotWrittenBySeveralReplicas) {
  Job job(1, 2);
  auto v = job.variable(scalar(1));
  job.coordinator.schedule([](Variable a) { get_strategy().run([&] { a.assign(scalar(2)); }); }, v);
  EXPECT_THAT([&] { job.coordinator.join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "aggregation NONE"));
  EXPECT_EQ(v.value().item<float>(), 1);
}

// [r + 10, 1, 2, ..., 7] of replica r.
at::Tensor offered_by_replica() {
  auto value = at::arange(8, at::kFloat);
  value[0] = replica_id() + 10;
  return value;
}

Floats sums(int replicas) {
  Floats all;
  for (int i = 0; i < 8; ++i) all.push_back(i == 0 ? 10 * replicas + replicas * (replicas - 1) / 2 : i * replicas);
  return all;
}

TEST(ParameterServerVariable, AggregatesVectors) {
  for (const int replicas : {1, 2}) {
    Job job(2, replicas);
    auto v = job.variable(at::zeros({8}), {.aggregation = Aggregation::kSum});
    job.run([](Variable a) { get_strategy().run([&] { a.assign(offered_by_replica()); }); }, v);
    EXPECT_EQ(floats(v.value()), sums(replicas));
  }
}

TEST(ParameterServerVariable, AggregatesInEachShard) {
  for (const int replicas : {1, 2}) {
    Job job(2, replicas, FixedShardsPartitioner(2));
    auto v = job.variable(at::zeros({8}), {.aggregation = Aggregation::kSum});
    ASSERT_EQ(v.shards().size(), 2U);
    job.run([](Variable a) { get_strategy().run([&] { a.assign(offered_by_replica()); }); }, v);
    EXPECT_EQ(floats(v.value()), sums(replicas));
    v.assign(at::zeros({8}));
    job.run(
        [](const Variable& a) {
          auto shards = a.shards();
          get_strategy().run([&] {
            shards[0].assign(offered_by_replica().narrow(0, 0, 4));
            shards[1].assign(offered_by_replica().narrow(0, 4, 4));
          });
        },
        v);
    EXPECT_EQ(floats(v.value()), sums(replicas));
  }
}

TEST(ParameterServerVariable, IsReadByReplicasWhoseResultsAreReduced) {
  for (const int replicas : {1, 2}) {
    Job job(1, replicas);
    const auto v = job.variable(scalar(1));
    const auto results = job.run(
        [](const Variable& a, double x) {
          auto& strategy = get_strategy();
          const auto both = strategy.run([&] { return std::pair(a.value() + x, -(a.value() - x)); });
          const auto sum = strategy.reduce(ReduceOp::kSum, both);
          return std::vector{sum.first.detach(), sum.second.detach()};
        },
        v, 3.0);
    EXPECT_THAT(floats(results), ElementsAre(4 * replicas, 2 * replicas));
  }
}

TEST(ParameterServerVariable, IsReadOnceWhereReadsAreCached) {
  Job job(1);
  const auto v = job.variable(scalar(1));
  const auto read = job.run(
      [](Variable a) {
        Floats values;
        {
          const ps::CachedReads cached;
          values.push_back(a.value().item<double>());
          a.assign(5);
          values.push_back(a.value().item<double>());
        }
        a.assign(2);
        {
          const ps::CachedReads cached;
          values.push_back((a * 3).item<double>());
          a.assign(3);
          values.push_back((a * 3).item<double>());
          const auto nested = code_of([] { ps::CachedReads(); });
          values.push_back(nested == ErrorCode::kInvalidArgument ? 1 : 0);
        }
        a.assign_add(1);
        values.push_back(a.value().item<double>());
        return values;
      },
      v);
  EXPECT_THAT(read, ElementsAre(1, 1, 6, 6, 1, 4));
}

// Reads are counted by the servers: of a shard only its rows are asked for, and once.
TEST(ParameterServerVariable, IsLookedUpWithOneReadForEachShard) {
  Job job(3, 1, FixedShardsPartitioner(3));
  const auto v = job.variable(at::arange(1, 11, at::kFloat).reshape({5, 2}));
  auto& client = job.strategy.variables()->client();
  const auto reads = [&] {
    return Ints{(long)client.statistics(0).reads, (long)client.statistics(1).reads, (long)client.statistics(2).reads};
  };
  const auto before = reads();
  const auto rows = job.run(
      [](const Variable& table) {
        return embedding_lookup(ShardedVariable(table.shards()), ints_vec({0, 3, 4}));
      },
      v);
  EXPECT_THAT(floats(rows), ElementsAre(1, 2, 7, 8, 9, 10));
  const auto after = reads();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(after[i] - before[i], 1) << "server " << i;
  const auto mean = job.run(
      [](const Variable& table) {
        return embedding_lookup_sparse(ShardedVariable(table.shards()), {ints_vec({0, 0, 1, 2}), ints_vec({0, 3, 4, 1})});
      },
      v);
  EXPECT_THAT(floats(mean), ElementsAre(4, 5, 9, 10, 3, 4));
  const auto safe = job.run(
      [](const Variable& table) {
        return safe_embedding_lookup_sparse(ShardedVariable(table.shards()),
                                            {ints_vec({0, 0, 1, 2}), ints_vec({0, -1, 4, 1}), vec({1, 1, -1, 1})});
      },
      v);
  EXPECT_THAT(floats(safe), ElementsAre(1, 2, 0, 0, 3, 4));
}

TEST(PerWorkerVariable, IsACopyOnEachWorker) {
  Job job;
  std::optional<Variable> v;
  {
    const auto scope = job.strategy.scope();
    v.emplace(per_worker_variable(scalar(0), {.name = "count"}));
  }
  EXPECT_THAT(v->devices(),
              ElementsAre("/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"));
  EXPECT_EQ(code_of([&] { v->value(); }), ErrorCode::kFailedPrecondition);
  for (int k = 1; k <= 10; ++k) {
    const auto of_worker = job.run(
        [](WorkerContext& worker, Variable a) {
          a.assign_add(1);
          return std::pair(worker.worker_index(), a.devices());
        },
        *v);
    EXPECT_THAT(of_worker.second, ElementsAre(v->devices()[static_cast<std::size_t>(of_worker.first)]));
    const auto all = floats(read_all(*v));
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0] + all[1], k);
  }
}

TEST(PerWorkerVariable, BeginsAnewOnAWorkerThatComesBack) {
  Job job(1);
  std::optional<Variable> v;
  {
    const auto scope = job.strategy.scope();
    v.emplace(per_worker_variable(vec({5, 6})));
  }
  job.cluster.stop("worker", 1);
  const auto add = [](Variable a) { a.assign_add(vec({1, 1})); };
  job.run(add, *v);
  job.cluster.stop("worker", 0);
  job.cluster.start("worker", 1);
  job.run(add, *v);
  job.cluster.start("worker", 0);
  EXPECT_THAT(floats(read_all(*v)), ElementsAre(5, 6, 6, 7));
  EXPECT_EQ(code_of([&] { read_all(job.variable(scalar(1))); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { per_worker_variable(scalar(1)); }), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::testing
