// The page of tf.distribute.MultiWorkerMirroredStrategy.
//
//   lockstep run -n 2 seeds_multi_worker
#include "page.h"
#include "two_replicas.h"
#include "workers.h"

using namespace seeds;

int main() try {
  ls::MultiWorkerMirroredStrategy strategy;
  return run_blocks({{"multi_worker_01", what_tf_config_says},
                     {"multi_worker_02", [&] { fit_on_all_workers(strategy); }},
                     {"multi_worker_03", [&] { train_on_all_workers(strategy); }},
                     {"multi_worker_04", distribute_a_dataset},
                     {"multi_worker_05", one_constant_each},
                     {"multi_worker_06", values_by_replica},
                     {"multi_worker_07", number_of_replicas},
                     {"multi_worker_08", values_on_devices},
                     {"multi_worker_09", gather_rows},
                     {"multi_worker_10", gather_along_each_axis},
                     {"multi_worker_11", sum_of_the_ids},
                     {"multi_worker_12", devices_of_results},
                     {"multi_worker_13", reduce_over_replicas},
                     {"multi_worker_14", reduce_over_rows_too},
                     {"multi_worker_15", run_with_a_constant},
                     {"multi_worker_16", run_with_distributed_values},
                     {"multi_worker_17", run_with_an_all_reduce},
                     {"multi_worker_18", variables_in_scope}});
} catch (const std::exception& error) {
  std::cerr << "seeds_multi_worker: " << error.what() << "\n";
  return 1;
}
