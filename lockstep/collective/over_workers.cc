#include "lockstep/collective/over_workers.h"

#include <ATen/ATen.h>

#include "lockstep/collective/dense.h"
#include "lockstep/collective/reduce_values.h"

namespace lockstep {

at::Tensor reduce_over_workers(WorkerGroup& workers, ReduceOp op, std::span<const at::Tensor> values, const char* what) {
  for (const auto& value : values) require_dense(value, what);
  require_equal_values(values, what);
  std::vector<std::vector<at::Tensor>> inputs;
  for (const auto& value : values) inputs.push_back({(op == ReduceOp::kMean ? without_overflow(value) : value).detach()});
  std::array<at::Tensor, 1> sum = {at::empty(inputs[0][0].sizes(), inputs[0][0].options())};
  workers.sum(what, inputs, sum);
  return op == ReduceOp::kSum ? sum[0] : mean_of_sum(sum[0], workers.layout().total_replicas());
}

IndexedSlices gather_slices(WorkerGroup& workers, const std::vector<IndexedSlices>& values) {
  std::vector<at::Tensor> rows;
  std::vector<at::Tensor> indices;
  for (const auto& slices : values) {
    slices.validate();
    rows.push_back(slices.values.detach());
    indices.push_back(slices.indices);
  }
  return {concatenate_values(workers.all_gather("the rows of sparse values", rows), 0),
          at::cat(workers.all_gather("the indices of sparse values", indices), 0), values[0].dense_shape};
}

at::Tensor value_of_first(WorkerGroup& workers, const at::Tensor& value, const char* what) {
  std::array<at::Tensor, 1> copy = {value.detach().clone(at::MemoryFormat::Contiguous)};
  workers.broadcast(what, copy);
  return copy[0];
}

}  // namespace lockstep
