#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/variable/variable.h"

namespace lockstep {

// A variable of which every worker has a copy of its own, on its CPU: counters and running values that need no server. Made on
// the coordinator, in the scope() of a ParameterServerStrategy, and given to closures, which read and write the copy of the
// worker that they run on. A worker's copy begins with `initial` when a closure there first uses it, also on a worker that was
// started again. On the coordinator it has no value (kFailedPrecondition): read_all() has all of them. Throws
// kFailedPrecondition outside such a scope.
Variable per_worker_variable(const at::Tensor& initial, const VariableOptions& options = {});

// The workers' copies, by the workers' indices. Throws kInvalidArgument for another kind of variable, kUnavailable naming a
// worker that cannot be asked.
std::vector<at::Tensor> read_all(const Variable& variable);

}  // namespace lockstep
