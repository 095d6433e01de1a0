#pragma once

#include <cstdint>
#include <vector>

// How many rows go where. Pure arithmetic, the same answer on every worker.

namespace lockstep {

// `rows` in `parts` contiguous parts that differ by at most one, larger ones first: 4 over 3 is 2, 1, 1.
std::vector<std::int64_t> balanced_parts(std::int64_t rows, std::int64_t parts);

// TensorFlow's older split: parts of ceil(rows / parts) until the rows are used up: 4 over 3 is 2, 2, 0.
std::vector<std::int64_t> ceiling_parts(std::int64_t rows, std::int64_t parts);

// The cyclic list of sub-batch sizes that worker `worker` of `workers` cuts its stream into, such that in every step
// the workers together use `global_batch` rows. Sums to `global_batch`; entries differ by at most one.
// Throws kInvalidArgument unless global_batch >= 1, workers >= 1, replicas_per_worker >= 1, 0 <= worker < workers.
std::vector<std::int64_t> batch_sizes_for_worker(std::int64_t global_batch, std::int64_t workers,
                                                 std::int64_t replicas_per_worker, std::int64_t worker);

}  // namespace lockstep
