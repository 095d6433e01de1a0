// The page of tf.distribute.experimental.MultiWorkerMirroredStrategy (TensorFlow 2.4): the older name and its arguments.
//
//   lockstep run -n 2 seeds_multi_worker_experimental
#include "page.h"
#include "two_replicas.h"
#include "workers.h"

using namespace seeds;

int main() try {
  ls::experimental::MultiWorkerMirroredStrategy strategy(ls::CollectiveCommunication::kAuto);
  return run_blocks({{"multi_worker_experimental_01", what_tf_config_says},
                     {"multi_worker_experimental_02", [&] { fit_on_all_workers(strategy); }},
                     {"multi_worker_experimental_03", [&] { train_on_all_workers(strategy); }},
                     {"multi_worker_experimental_04", distribute_a_dataset},
                     {"multi_worker_experimental_05", one_constant_each},
                     {"multi_worker_experimental_06", values_by_replica},
                     {"multi_worker_experimental_07", number_of_replicas},
                     {"multi_worker_experimental_08", values_on_devices},
                     {"multi_worker_experimental_09", gather_rows},
                     {"multi_worker_experimental_10", gather_along_each_axis},
                     {"multi_worker_experimental_11", sum_of_the_ids},
                     {"multi_worker_experimental_12", devices_of_results},
                     {"multi_worker_experimental_13", reduce_over_replicas},
                     {"multi_worker_experimental_14", reduce_over_rows_too},
                     {"multi_worker_experimental_15", run_with_a_constant},
                     {"multi_worker_experimental_16", run_with_distributed_values},
                     {"multi_worker_experimental_17", run_with_an_all_reduce},
                     {"multi_worker_experimental_18", variables_in_scope}});
} catch (const std::exception& error) {
  std::cerr << "seeds_multi_worker_experimental: " << error.what() << "\n";
  return 1;
}
