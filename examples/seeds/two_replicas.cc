#include "two_replicas.h"

#include "page.h"

namespace seeds {

// A global batch of 2 is divided, and every replica doubles its part.
void distribute_a_dataset() {
  // [distribute]
  const std::int64_t global_batch_size = 2;
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto dataset = ls::data::Dataset::range(4).batch(global_batch_size);
  auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  const auto replica_fn = [](torch::Tensor input) { return input * 2; };
  std::vector<ls::PerReplica<torch::Tensor>> result;
  for (auto x : dist_dataset) result.push_back(strategy.run(replica_fn, x));
  shows(result,
        "[PerReplica:{\n"
        "  0: <Tensor: shape=(1,), dtype=int64, value=[0]>,\n"
        "  1: <Tensor: shape=(1,), dtype=int64, value=[2]>\n"
        "}, PerReplica:{\n"
        "  0: <Tensor: shape=(1,), dtype=int64, value=[4]>,\n"
        "  1: <Tensor: shape=(1,), dtype=int64, value=[6]>\n"
        "}]");
  // [distribute]
}

void one_constant_each() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto value_fn = [](const ls::ValueContext&) { return torch::tensor(1.0f); };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  auto local_result = strategy.experimental_local_results(distributed_values);
  shows(local_result, "[<Tensor: shape=(), dtype=float32, value=1.0>, <Tensor: shape=(), dtype=float32, value=1.0>]");
}

void values_by_replica() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const std::vector<double> array_value = {3, 2, 1};
  const auto value_fn = [&](const ls::ValueContext& ctx) {
    return array_value[static_cast<std::size_t>(ctx.replica_id_in_sync_group)];
  };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  shows(strategy.experimental_local_results(distributed_values), "[3.0, 2.0]");
}

void number_of_replicas() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto value_fn = [](const ls::ValueContext& ctx) { return ctx.num_replicas_in_sync; };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  shows(strategy.experimental_local_results(distributed_values), "[2, 2]");
}

// The page places them on the cores of a TPU.
void values_on_devices() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  std::vector<torch::Tensor> multiple_values;
  for (int replica = 0; replica < strategy.num_replicas_in_sync(); ++replica)
    multiple_values.push_back(torch::tensor(1.0f, strategy.replicas().torch_device(replica)));
  const auto value_fn = [&](const ls::ValueContext& ctx) {
    return multiple_values[static_cast<std::size_t>(ctx.replica_id_in_sync_group)];
  };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  expect(distributed_values.size() == strategy.extended().worker_devices().size());
  for (std::size_t replica = 0; replica < distributed_values.size(); ++replica)
    expect(distributed_values[replica].is_same(multiple_values[replica]));  // where it was put: not even copied
}

void gather_rows() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // A component of shape (2, 1) on each replica.
  auto distributed_values = strategy.experimental_distribute_values_from_function(
      [](const ls::ValueContext&) { return torch::tensor({1, 2}, torch::kInt).reshape({2, 1}); });
  shows(strategy.gather(distributed_values, /*axis=*/0), "<Tensor: shape=(4, 1), dtype=int32, value=[[1], [2], [1], [2]]>");
}

void gather_along_each_axis() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1", "CPU:2", "CPU:3"});
  const auto single_tensor = torch::arange(6, torch::kInt).reshape({1, 2, 3});
  auto distributed_values =
      strategy.experimental_distribute_values_from_function([&](const ls::ValueContext&) { return single_tensor.clone(); });
  shows(strategy.gather(distributed_values, /*axis=*/0),
        "<Tensor: shape=(4, 2, 3), dtype=int32, value=[[[0, 1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]], "
        "[[0, 1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]]]>");
  shows(strategy.gather(distributed_values, /*axis=*/1),
        "<Tensor: shape=(1, 8, 3), dtype=int32, value=[[[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], "
        "[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]]>");
  shows(strategy.gather(distributed_values, /*axis=*/2),
        "<Tensor: shape=(1, 2, 12), dtype=int32, value=[[[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], "
        "[3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5]]]>");
}

void sum_of_the_ids() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto step_fn = [] { return torch::tensor(ls::replica_context().replica_id_in_sync_group(), torch::kInt); };
  auto per_replica_result = strategy.run(step_fn);
  auto total = strategy.reduce("SUM", per_replica_result);
  shows(total, "<Tensor: shape=(), dtype=int32, value=1>");
}

// LibTorch's CPU has no parts: which one a replica has, its context knows.
void devices_of_results() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto step_fn = [](ls::ReplicaContext& replica) {
    return std::pair(replica.device(), torch::tensor(replica.replica_id_in_sync_group(), torch::kInt));
  };
  auto per_replica_result = strategy.run(step_fn);
  shows(strategy.experimental_local_results(per_replica_result)[0].first, "/job:localhost/replica:0/task:0/device:CPU:0");
  shows(strategy.experimental_local_results(per_replica_result)[1].first, "/job:localhost/replica:0/task:0/device:CPU:1");
  auto ids = strategy.run([](const auto& result) { return result.second; }, per_replica_result);
  auto total = strategy.reduce("SUM", ids);
  shows(total.device().str(), "cpu");
}

namespace {

// What the pages reduce: 0, 1, 2, 3 on replica 0 and what follows on replica 1.
ls::PerReplica<torch::Tensor> rows_of(std::int64_t global_batch) {
  return ls::PerReplica<torch::Tensor>({torch::arange(4), torch::arange(4, global_batch)});
}

}  // namespace

void reduce_over_replicas() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto per_replica_result = rows_of(8);
  shows(strategy.reduce("sum", per_replica_result), "<Tensor: shape=(4,), dtype=int64, value=[4, 6, 8, 10]>");
}

void reduce_over_rows_too() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto per_replica_result = rows_of(8);
  shows(strategy.reduce("sum", per_replica_result, /*axis=*/0), "<Tensor: shape=(), dtype=int64, value=28>");
  // The last batch has 6 rows: their mean is not the mean of the two replicas' means.
  shows(strategy.reduce("mean", rows_of(6), /*axis=*/0), "<Tensor: shape=(), dtype=float64, value=2.5>");
}

void run_with_a_constant() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto tensor_input = torch::tensor(3.0f);
  const auto replica_fn = [](torch::Tensor input) { return input * 2.0; };
  auto result = strategy.run(replica_fn, tensor_input);
  shows(result, R"(PerReplica:{
  0: <Tensor: shape=(), dtype=float32, value=6.0>,
  1: <Tensor: shape=(), dtype=float32, value=6.0>
})");
}

// Equal results stay one for each replica; the page shows one 4.
void run_with_distributed_values() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto run = [&] {
    auto distributed_values = strategy.experimental_distribute_values_from_function(
        [](const ls::ValueContext& value_context) { return value_context.num_replicas_in_sync; });
    return strategy.run([](int input) { return input * 2; }, distributed_values);
  };
  auto result = run();
  shows(result, "PerReplica:{\n  0: 4,\n  1: 4\n}");
}

void run_with_an_all_reduce() {
  ls::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const auto run = [&] {
    auto distributed_values = strategy.experimental_distribute_values_from_function(
        [](const ls::ValueContext& value_context) { return torch::tensor(value_context.replica_id_in_sync_group, torch::kInt); });
    const auto replica_fn = [](torch::Tensor input) { return ls::replica_context().all_reduce("sum", input); };
    return strategy.run(replica_fn, distributed_values);
  };
  auto result = run();
  shows(result, R"(PerReplica:{
  0: <Tensor: shape=(), dtype=int32, value=1>,
  1: <Tensor: shape=(), dtype=int32, value=1>
})");
}

void variables_in_scope() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  std::optional<ls::Variable> mirrored_variable;
  {
    auto scope = strategy.scope();
    mirrored_variable.emplace(1.0);
  }
  shows(*mirrored_variable, R"(MirroredVariable:{
  0: <Variable 'Variable' shape=(), dtype=float32, value=1.0>,
  1: <Variable 'Variable/replica_1' shape=(), dtype=float32, value=1.0>
})");
  ls::Variable regular_variable(1.0);
  shows(regular_variable, "<Variable 'Variable' shape=(), dtype=float32, value=1.0>");
}

}  // namespace seeds
