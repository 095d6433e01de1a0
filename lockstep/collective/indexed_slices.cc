#include "lockstep/collective/indexed_slices.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"

namespace lockstep {

void IndexedSlices::validate() const {
  if (!values.defined() || !indices.defined())
    throw Error(ErrorCode::kInvalidArgument, "IndexedSlices: values and indices must both be given");
  require_dense(values, "IndexedSlices::values");
  require_dense(indices, "IndexedSlices::indices");
  if (std::ranges::any_of(dense_shape, [](std::int64_t size) { return size < 0; }))
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("IndexedSlices: dense_shape ", at::IntArrayRef(dense_shape),
                                                           " has a negative size; sizes are 0 or more"));
  if (indices.dim() != 1 || values.dim() < 1 || values.size(0) != indices.size(0))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("IndexedSlices: values of shape ", values.sizes(), " and indices of shape ", indices.sizes(),
                              " do not fit; there must be one index for each row of values"));
  if (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("IndexedSlices: indices have dtype ", indices.scalar_type(), "; they must be int32 or int64"));
  if (!dense_shape.empty() && dense_shape.size() != static_cast<std::size_t>(values.dim()))
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("IndexedSlices: dense_shape has ", dense_shape.size(),
                                                           " dimensions, values have ", values.dim(), "; they must be equal"));
  if (!dense_shape.empty() && values.sizes().slice(1) != at::IntArrayRef(dense_shape).slice(1))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("IndexedSlices: rows of values of shape ", values.sizes(), " do not fit into dense_shape ",
                              at::IntArrayRef(dense_shape), "; they must be equal after the first dimension"));
}

void IndexedSlices::require_indices_below(std::int64_t rows, const std::string& what) const {
  if (indices.numel() == 0) return;
  const auto lowest = indices.min().item<std::int64_t>();
  const auto highest = indices.max().item<std::int64_t>();
  if (lowest >= 0 && highest < rows) return;
  throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": index ", lowest < 0 ? lowest : highest, " is outside the ",
                                                         rows, " rows; indices must be in [0, ", rows, ")"));
}

at::Tensor to_dense(const IndexedSlices& slices) {
  slices.validate();
  if (slices.dense_shape.empty())
    throw Error(ErrorCode::kInvalidArgument, "IndexedSlices: dense_shape is not known; give it to make a dense tensor");
  auto dense = at::zeros(slices.dense_shape, slices.values.options());
  const auto indices = slices.indices.to(at::kLong);
  slices.require_indices_below(dense.size(0), "IndexedSlices");
  return dense.index_add_(0, indices, slices.values);
}

at::Tensor to_sparse_tensor(const IndexedSlices& slices) {
  slices.validate();
  if (slices.dense_shape.empty())
    throw Error(ErrorCode::kInvalidArgument, "IndexedSlices: dense_shape is not known; give it to make a sparse tensor");
  return at::_sparse_coo_tensor_unsafe(slices.indices.to(at::kLong).unsqueeze(0), slices.values, slices.dense_shape);
}

IndexedSlices from_sparse_tensor(const at::Tensor& sparse) {
  if (sparse.sparse_dim() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("a sparse gradient must be sparse in its first dimension only; this one has ",
                              sparse.sparse_dim(), " sparse dimensions"));
  return {sparse._values(), sparse._indices().squeeze(0), sparse.sizes().vec()};
}

IndexedSlices concatenate(const std::vector<IndexedSlices>& parts) {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> indices;
  for (const auto& part : parts) {
    part.validate();
    if (part.values.sizes().slice(1) != parts[0].values.sizes().slice(1) ||
        part.values.scalar_type() != parts[0].values.scalar_type())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("IndexedSlices: rows of shape ", part.values.sizes().slice(1), " ", part.values.scalar_type(),
                                " and of shape ", parts[0].values.sizes().slice(1), " ", parts[0].values.scalar_type(),
                                " cannot be put together; all replicas must give rows of one shape and dtype"));
    values.push_back(part.values);
    indices.push_back(part.indices);
  }
  if (parts.empty()) throw Error(ErrorCode::kInvalidArgument, "IndexedSlices: there is nothing to put together");
  return {at::cat(values, 0), at::cat(indices, 0), parts[0].dense_shape};
}

void prefetch_rows(const at::Tensor& table, const at::Tensor& indices) {
  constexpr std::int64_t kCacheLine = 64;
  constexpr std::int64_t kLargestRow = 1024;  // longer rows are read ahead by the processor itself
  if (!table.is_cpu() || !table.is_contiguous() || table.dim() < 1 || indices.scalar_type() != at::kLong ||
      !indices.is_contiguous())
    return;
  const auto row_bytes = table.stride(0) * static_cast<std::int64_t>(table.element_size());
  const char* rows = static_cast<const char*>(table.data_ptr());
  const auto* index = indices.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    if (index[i] < 0 || index[i] >= table.size(0)) continue;  // whoever writes the rows complains
    for (std::int64_t at = 0; at < std::min(row_bytes, kLargestRow); at += kCacheLine)
      __builtin_prefetch(rows + index[i] * row_bytes + at, /*write=*/1);
  }
}

}  // namespace lockstep
