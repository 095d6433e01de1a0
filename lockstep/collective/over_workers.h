#pragma once

#include <span>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/fwd.h"

// Reductions of values of which every worker has those of its own replicas. All workers call them; `what` names the call.

namespace lockstep {

// SUM or MEAN over all replicas of the job. A mean of integers is float64. Throws kInvalidArgument, as reduce_values does,
// when this worker's values differ in shape or dtype; on all workers when the workers' do.
at::Tensor reduce_over_workers(WorkerGroup& workers, ReduceOp op, std::span<const at::Tensor> values, const char* what);

// All replicas' rows one after the other, in replica order.
IndexedSlices gather_slices(WorkerGroup& workers, const std::vector<IndexedSlices>& values);

// Worker 0's value.
at::Tensor value_of_first(WorkerGroup& workers, const at::Tensor& value, const char* what);

}  // namespace lockstep
