#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/ps/row_split.h"
#include "lockstep/variable/variable.h"

namespace lockstep {

// A variable that is divided along its first dimension: shard 0 has the first rows. It is used like the whole one, and asks
// only the shards that have what is wanted, each once for one call. A handle: copies name the same shards.
//
//   ShardedVariable table({first, second}, "table");
//   table.index({Slice(2, 5), 0});                     // as of a tensor, with steps below 0 too
//   table.scatter_add({rows, ids});
//   at::Tensor rows = embedding_lookup(table, ids);    // embedding_lookup.h
//
// What reads and writes mean inside and outside of replicas is what they mean for the shards (Variable). A read of several
// shards is not one moment's: writes of others may come between.
class ShardedVariable {
 public:
  // Throws kInvalidArgument unless there are shards, of one dtype, that differ in their first dimension only.
  explicit ShardedVariable(std::vector<Variable> variables, std::string name = "ShardedVariable");

  const std::string& name() const { return name_; }
  at::IntArrayRef sizes() const { return sizes_; }
  at::ScalarType scalar_type() const;
  const std::vector<Variable>& variables() const { return variables_; }  // the shards
  const ps::RowSplit& split() const { return split_; }

  // The whole: the shards one after the other, a new tensor. Differentiable.
  at::Tensor value() const;
  operator at::Tensor() const { return value(); }  // NOLINT: a variable is used like a tensor

  // Python's v[...], a new tensor. Integers, slices with any step but 0, an ellipsis and None (a new dimension) in any number;
  // or one tensor of bool that says for each row, or each item of the first dimensions, whether it is wanted. Throws
  // kOutOfRange for a row that is not there, when it is the first index, and kInvalidArgument for all else that does not fit,
  // and for other tensors: embedding_lookup takes them.
  at::Tensor index(at::ArrayRef<at::indexing::TensorIndex> indices) const;
  at::Tensor index(std::initializer_list<at::indexing::TensorIndex> indices) const;

  // Writes of the whole shape; else kInvalidArgument, and nothing is written. The value is converted to the dtype.
  ShardedVariable& assign(const at::Tensor& value);
  ShardedVariable& assign_add(const at::Tensor& value);
  ShardedVariable& assign_sub(const at::Tensor& value);

  // Row-wise writes at slices.indices, as Variable's. Throw kUnimplemented unless the rows are divided evenly
  // (RowSplit::div), and kInvalidArgument for rows that do not fit or are not there; then nothing is written.
  ShardedVariable& scatter_add(const IndexedSlices& slices);
  ShardedVariable& scatter_sub(const IndexedSlices& slices);
  ShardedVariable& scatter_mul(const IndexedSlices& slices);
  ShardedVariable& scatter_div(const IndexedSlices& slices);
  ShardedVariable& scatter_min(const IndexedSlices& slices);
  ShardedVariable& scatter_max(const IndexedSlices& slices);
  ShardedVariable& scatter_update(const IndexedSlices& slices);

  // These rows in the order of the shards, not of `indices`: they are as they come. Needs an even division, as scatter_*.
  at::Tensor sparse_read(const at::Tensor& indices) const;
  // These rows in the order of `indices`, a vector of whole numbers, which may repeat. Throws kInvalidArgument for one that is
  // not there.
  at::Tensor gather_rows(const at::Tensor& indices) const;

  // What a checkpoint keeps: the whole, which any number of shards of the same whole shape can be restored from.
  at::Tensor saved_value() const;
  void restore(const at::Tensor& value);

 private:
  using Write = Variable& (Variable::*)(const at::Tensor&);
  using Scatter = Variable& (Variable::*)(const IndexedSlices&);
  void require_sizes(const char* what, const at::Tensor& value) const;
  void require_div(const char* what) const;
  ShardedVariable& write(const char* what, Write how, const at::Tensor& value);
  ShardedVariable& scatter(const char* what, Scatter how, const IndexedSlices& slices);
  at::Tensor read_parts(const std::vector<ps::RowSplit::Part>& parts) const;
  at::Tensor read_range(std::int64_t start, std::int64_t step, std::int64_t count) const;
  at::Tensor masked(const at::Tensor& mask) const;

  // Const after construction.
  std::vector<Variable> variables_;
  std::string name_;
  ps::RowSplit split_;
  std::vector<std::int64_t> sizes_;
};

namespace internal {

inline at::Tensor operand(const ShardedVariable& variable) { return variable.value(); }
template <typename T>
const T& operand(const T& value) {
  return value;
}

template <typename A, typename B>
concept WithShardedVariable = std::same_as<A, ShardedVariable> || std::same_as<B, ShardedVariable>;

}  // namespace internal

// Arithmetic is the tensors', == too: item by item. Include <ATen/ATen.h> or <torch/torch.h> to use it.
template <typename A, typename B>
requires internal::WithShardedVariable<A, B>
auto operator+(const A& a, const B& b) { return internal::operand(a) + internal::operand(b); }
template <typename A, typename B>
requires internal::WithShardedVariable<A, B>
auto operator-(const A& a, const B& b) { return internal::operand(a) - internal::operand(b); }
template <typename A, typename B>
requires internal::WithShardedVariable<A, B>
auto operator*(const A& a, const B& b) { return internal::operand(a) * internal::operand(b); }
template <typename A, typename B>
requires internal::WithShardedVariable<A, B>
auto operator/(const A& a, const B& b) { return internal::operand(a) / internal::operand(b); }
template <typename A, typename B>
requires internal::WithShardedVariable<A, B>
auto operator==(const A& a, const B& b) { return internal::operand(a) == internal::operand(b); }
inline at::Tensor operator-(const ShardedVariable& variable) { return variable.value().neg(); }

}  // namespace lockstep
