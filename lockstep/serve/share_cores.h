#pragma once

#include "lockstep/cluster/cluster_spec.h"

namespace lockstep::internal {

// How many threads an operation of this parameter server or worker may use: its part of the machine's cores, when other
// servers and workers have addresses on the same host. (The coordinator waits most of the time, and does not count.) With more
// threads than cores each waits for another that is not running: two workers with two threads on two cores made a tenth of
// the steps.
int threads_of_task(const ClusterSpec& spec, const Task& task, int cores);

// Prepares a process that does nothing but serve as this task: its share of the cores for LibTorch's operations, unless
// OMP_NUM_THREADS is set, and on a worker memory that is kept from step to step (device/allocator.h).
void prepare_process(const ClusterSpec& spec, const Task& task);

}  // namespace lockstep::internal
