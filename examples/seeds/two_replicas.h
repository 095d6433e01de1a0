#pragma once

// Blocks that several pages have in common, with two (or four) replicas. The pages' GPUs are parts of the CPU here, so that
// the programs run everywhere.

namespace seeds {

void distribute_a_dataset();
void one_constant_each();
void values_by_replica();
void number_of_replicas();
void values_on_devices();
void gather_rows();
void gather_along_each_axis();
void sum_of_the_ids();
void devices_of_results();
void reduce_over_replicas();
void reduce_over_rows_too();
void run_with_a_constant();
void run_with_distributed_values();
void run_with_an_all_reduce();
void variables_in_scope();

}  // namespace seeds
