// The page of tf.distribute.Strategy (TensorFlow 2.3). Its blocks on logical devices are in logical_devices.cc.
#include "loops.h"
#include "one_replica.h"
#include "page.h"
#include "two_replicas.h"

using namespace seeds;

namespace {

// Blocks 6, 7 and 8 belong together: every worker makes its own input, and every replica gets batches of it.
void input_function() {
  const ls::InputContext one_of_four{.num_input_pipelines = 1, .input_pipeline_id = 0, .num_replicas_in_sync = 4};
  expect((*batches_of_ones(one_of_four).begin())[0].sizes() == torch::IntArrayRef({2, 1, 1}));
}

void distribute_an_input_function() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto ds = strategy.experimental_distribute_datasets_from_function(batches_of_ones);
  expect(ds.cardinality() == ls::data::kInfinite);
}

void train(ls::Strategy& strategy, const ls::DistributedDataset& ds) {
  const auto step_fn = [](torch::Tensor inputs) { return inputs; };
  int steps = 0;
  for (auto batch : ds) {
    auto replica_results = strategy.run(step_fn, batch);
    expect(strategy.gather(replica_results, /*axis=*/0).sizes() == torch::IntArrayRef({8, 1, 1}));
    if (++steps == 3) break;  // the input has no end
  }
}

void train_on_an_input_function() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  train(strategy, strategy.experimental_distribute_datasets_from_function(batches_of_ones));
}

// One value for every replica, which is one.
void one_value() {
  ls::MirroredStrategy strategy({"CPU:0"});
  const auto value_fn = [](const ls::ValueContext&) { return torch::tensor(1.0f); };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  auto local_result = strategy.experimental_local_results(distributed_values);
  shows(local_result, "[<Tensor: shape=(), dtype=float32, value=1.0>]");
}

void value_by_replica() {
  ls::MirroredStrategy strategy({"CPU:0"});
  const std::vector<double> array_value = {3, 2, 1};
  const auto value_fn = [&](const ls::ValueContext& ctx) {
    return array_value[static_cast<std::size_t>(ctx.replica_id_in_sync_group)];
  };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  shows(strategy.experimental_local_results(distributed_values), "[3.0]");
}

void number_of_one() {
  ls::MirroredStrategy strategy({"CPU:0"});
  const auto value_fn = [](const ls::ValueContext& ctx) { return ctx.num_replicas_in_sync; };
  auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  shows(strategy.experimental_local_results(distributed_values), "[1]");
}

}  // namespace

int main() {
  return run_blocks({{"strategy_01", train_epochs},
                     {"strategy_02", one_process_of_a_cluster},
                     {"strategy_04", read_record_files},
                     {"strategy_05", read_record_files_with_a_signature},
                     {"strategy_06", input_function},
                     {"strategy_07", distribute_an_input_function},
                     {"strategy_08", train_on_an_input_function},
                     {"strategy_09", one_value},
                     {"strategy_10", value_by_replica},
                     {"strategy_11", number_of_one},
                     {"strategy_12", values_on_devices},
                     {"strategy_13", rows_of_an_array},
                     {"strategy_16", run_one_with_a_constant},
                     {"strategy_17", run_one_with_distributed_values},
                     {"strategy_18", one_variable}});
}
