// What docs/from_tf_distribute.md shows: TensorFlow idioms that look different here. Ends with 0 when the results are right.
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

namespace {

// A write that all replicas make together, by hand: what a variable with aggregation SUM does by itself.
bool merge_and_update(ls::Strategy& strategy) {
  auto scope = strategy.scope();
  ls::Variable weight(1.0);
  // [merge]
  strategy.run([&](ls::ReplicaContext& replica) {
    auto mine = torch::tensor(1.0f + replica.replica_id_in_sync_group());  // 1 and 2
    replica.merge_call(
        [&](ls::Strategy& all, const ls::PerReplica<torch::Tensor>& values) {
          auto total = all.extended().reduce_to("sum", values, /*destinations=*/weight);
          all.extended().update(weight, [&](torch::Tensor, torch::Tensor sum) { weight.assign_add(sum); }, total);
        },
        mine);
  });
  // [merge]
  return weight.components()[0].item<float>() == 4 && weight.components()[1].item<float>() == 4;
}

// One dataset for each replica, each with its part of the rows.
bool input_function(ls::Strategy& strategy) {
  // [input_function]
  auto inputs = strategy.distribute_datasets_from_function(
      [](const ls::InputContext& context) {
        const auto batch = context.get_per_replica_batch_size(/*global_batch_size=*/8);
        const std::int64_t first = context.input_pipeline_id, step = context.num_input_pipelines;
        return ls::data::Dataset::range(first, 16, step).batch(batch);  // rows first, first + step, ...
      },
      {.experimental_replication_mode = ls::InputReplicationMode::kPerReplica});
  // [input_function]
  // [iterator]
  std::int64_t total = 0;
  auto iterator = inputs.make_iterator();
  while (auto batch = iterator.next()) {
    auto sums = strategy.run([](torch::Tensor rows) { return rows.sum(); }, *batch);
    total += strategy.reduce("sum", sums).item<std::int64_t>();
  }
  // [iterator]
  return total == 120;
}

// A loss with weights and a regularisation term: summed over the replicas both count once.
bool losses(ls::Strategy& strategy) {
  // [loss]
  auto loss = strategy.run([](ls::ReplicaContext& replica) {
    auto per_example = torch::ones({replica.replica_id_in_sync_group() + 1});  // 1 row and 2 rows of a batch of 3
    return ls::compute_average_loss(per_example, /*global_batch_size=*/3) + ls::scale_regularization_loss(torch::tensor(0.5f));
  });
  const double total = strategy.reduce("sum", loss).item<double>();  // 3 / 3 + 0.5
  // [loss]
  return std::abs(total - 1.5) < 1e-6;
}

// The first version's loop, under its own names.
bool first_version() {
  // [first_version]
  namespace v1 = ls::compat::v1;
  v1::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto iterator = strategy.make_dataset_iterator(ls::data::Dataset::range(16).batch(8));
  std::int64_t total = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    iterator.initialize();
    for (int step = 0; step < 2; ++step) {  // a third would be kOutOfRange
      auto sums = strategy.experimental_run([](torch::Tensor rows) { return rows.sum(); }, iterator);
      total += strategy.reduce(v1::ReduceOp::kSum, sums).item<std::int64_t>();
    }
  }
  // [first_version]
  return total == 240;
}

}  // namespace

int main() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const bool is_right = merge_and_update(strategy) && input_function(strategy) && losses(strategy) && first_version();
  std::cout << (is_right ? "all results are right\n" : "a result is wrong\n");
  return is_right ? 0 : 1;
}
