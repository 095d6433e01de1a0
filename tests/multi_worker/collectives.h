#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "tests/multi_worker/report.h"

// The parts of the scenario `collectives`. Each makes its calls on all workers and reports what came.

namespace lockstep::testing {

void report_all_reduce(MultiWorkerMirroredStrategy& strategy, Report& report);    // of tensors, in replicas
void report_structures(MultiWorkerMirroredStrategy& strategy, Report& report);    // of structures and rows
void report_all_gather(MultiWorkerMirroredStrategy& strategy, Report& report);    // in replicas
void report_gradients(MultiWorkerMirroredStrategy& strategy, Report& report);     // through collectives
void report_across(MultiWorkerMirroredStrategy& strategy, Report& report);        // reduce, gather, merge_call, update
void report_contexts(MultiWorkerMirroredStrategy& strategy, Report& report);      // who is who
void report_variables(MultiWorkerMirroredStrategy& strategy, Report& report);     // mirrored ones
void report_on_read(MultiWorkerMirroredStrategy& strategy, Report& report);       // synchronised on read
void report_scatters(MultiWorkerMirroredStrategy& strategy, Report& report);      // row-wise writes
void report_inputs(MultiWorkerMirroredStrategy& strategy, Report& report);        // global batches
void report_own_inputs(MultiWorkerMirroredStrategy& strategy, Report& report);    // each worker's own data
void report_training(MultiWorkerMirroredStrategy& strategy, Report& report);      // models and optimizers
void report_odd_training(MultiWorkerMirroredStrategy& strategy, Report& report);  // parameters without gradients
void report_fitting(MultiWorkerMirroredStrategy& strategy, Report& report);       // Model::fit
void report_unused(MultiWorkerMirroredStrategy& strategy, Report& report);        // which those are

// Replica r's value: the same on whatever worker it is asked for. Integers are small.
at::Tensor value_of(int replica, at::ScalarType type, at::IntArrayRef sizes);

// value(0) + value(1) + ..., in double precision (complex: double), then in their own dtype; of booleans: any.
at::Tensor sum_of(int replicas, const std::function<at::Tensor(int)>& value);
// The mean: float64 of integers.
at::Tensor mean_of(int replicas, const std::function<at::Tensor(int)>& value);

}  // namespace lockstep::testing
