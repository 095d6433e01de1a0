#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Some rows of a larger tensor: values[k] belongs to row indices[k]. Indices may repeat; they add up when made dense.
// What a sparse gradient of an embedding is.
struct IndexedSlices {
  at::Tensor values;
  at::Tensor indices;                       // one dimension, int32 or int64
  std::vector<std::int64_t> dense_shape{};  // of the whole tensor; may be empty when it is not known

  // Throws kInvalidArgument naming what does not fit.
  void validate() const;
  // Throws kInvalidArgument with the first index that is not in [0, rows). `what` begins the message.
  void require_indices_below(std::int64_t rows, const std::string& what) const;
};

// The whole tensor, repeated rows added in order. Needs dense_shape.
at::Tensor to_dense(const IndexedSlices& slices);

// The same rows as LibTorch's sparse tensor (COO over the first dimension, not coalesced), and back.
// Needs dense_shape.
at::Tensor to_sparse_tensor(const IndexedSlices& slices);
IndexedSlices from_sparse_tensor(const at::Tensor& sparse);

// All parts' rows one after the other.
IndexedSlices concatenate(const std::vector<IndexedSlices>& parts);

// Asks the processor for these rows of a table that will be changed next. Rows of a large table are nowhere in its
// caches, and an optimizer waits for them one after the other. Does nothing on other devices.
void prefetch_rows(const at::Tensor& table, const at::Tensor& indices);

}  // namespace lockstep
