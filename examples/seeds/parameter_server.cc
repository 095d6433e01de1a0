// The page of TF-GNN's runner.ParameterServerStrategy. Its blocks make strategies of this process; what the strategy of the page
// itself does comes after them.
//
//   lockstep run --ps 2 --workers 2 --chief seeds_parameter_server
#include "loops.h"
#include "page.h"
#include "two_replicas.h"

using namespace seeds;

namespace {

// How the page describes it: 13 rows over the shards in order, the first ones with one row more.
void divide_rows(ls::Strategy& strategy) {
  // [rows]
  std::optional<ls::Variable> table, small, beside;
  {
    auto scope = strategy.scope();
    table.emplace(torch::arange(13.0f).reshape({13, 1}));
    small.emplace(torch::zeros({2}));
    const auto colocation = strategy.extended().colocate_vars_with(*small);
    beside.emplace(torch::zeros({13, 1}));
  }
  const auto shards = table->shards();
  shows(shards[0].read_value().flatten(), "<Tensor: shape=(7,), dtype=float32, value=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>");
  shows(shards[1].read_value().flatten(), "<Tensor: shape=(6,), dtype=float32, value=[7.0, 8.0, 9.0, 10.0, 11.0, 12.0]>");
  expect(small->shards().empty());                                            // 8 bytes: one shard is a plain variable
  expect(beside->shards().empty() && beside->devices() == small->devices());  // beside another they are whole
  // [rows]
}

void attributes(ls::Strategy& strategy) {
  expect(strategy.num_replicas_in_sync() >= 1 && strategy.cluster_resolver()->task_type() == "chief");
  expect(strategy.cluster_resolver()->cluster_spec().num_tasks("ps") == 2);
}

}  // namespace

int main() try {
  if (ls::run_role_if_server()) return 0;
  ls::runner::ParameterServerStrategy strategy(/*min_shard_bytes=*/16);
  return run_blocks({{"parameter_server_01", one_process_of_a_cluster},
                     {"parameter_server_02", distribute_a_dataset},
                     {"parameter_server_03", one_constant_each},
                     {"parameter_server_04", values_by_replica},
                     {"parameter_server_05", number_of_replicas},
                     {"parameter_server_06", values_on_devices},
                     {"parameter_server_07", gather_rows},
                     {"parameter_server_08", gather_along_each_axis},
                     {"parameter_server_09", sum_of_the_ids},
                     {"parameter_server_10", devices_of_results},
                     {"parameter_server_11", run_with_a_constant},
                     {"parameter_server_12", run_with_distributed_values},
                     {"parameter_server_13", run_with_an_all_reduce},
                     {"parameter_server_14", variables_in_scope},
                     {"its attributes", [&] { attributes(strategy); }},
                     {"its rows", [&] { divide_rows(strategy); }}});
} catch (const std::exception& error) {
  std::cerr << "seeds_parameter_server: " << error.what() << "\n";
  return 1;
}
