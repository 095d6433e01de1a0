#include "lockstep/ps/embedding_lookup.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

bool is_of_numbers(const at::Tensor& value) {
  return value.defined() && (value.scalar_type() == at::kLong || value.scalar_type() == at::kInt);
}

// One number for each row, to be multiplied with all of it.
at::Tensor beside(const at::Tensor& numbers, const at::Tensor& rows) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(rows.dim()), 1);
  sizes[0] = rows.size(0);
  return numbers.reshape(sizes);
}

at::Tensor shorten(const at::Tensor& rows, double max_norm) {
  if (!(max_norm > 0))
    throw Error(ErrorCode::kInvalidArgument, str("embedding_lookup: max_norm is ", max_norm, "; it must be above 0"));
  if (rows.numel() == 0) return rows;
  const auto norms = rows.dim() == 1 ? rows.abs() : rows.flatten(1).norm(2, 1);
  return rows * max_norm / beside(norms.clamp_min(max_norm), rows);
}

// Throws unless `sparse` fits together.
void validate(const SparseIds& sparse) {
  if (!is_of_numbers(sparse.rows) || !is_of_numbers(sparse.ids) || sparse.rows.dim() != 1 || sparse.ids.dim() != 1 ||
      sparse.rows.numel() != sparse.ids.numel())
    throw Error(ErrorCode::kInvalidArgument,
                "SparseIds: rows and ids must be tensors of one dimension, of int32 or int64, with one row for each id");
  if (sparse.weights.defined() && sparse.weights.sizes() != sparse.ids.sizes())
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("SparseIds: weights of shape ", sparse.weights.sizes(), " for ",
                                                           sparse.ids.numel(), " ids; give one weight for each id, or none"));
  if (sparse.rows.numel() == 0) return;
  const auto first = sparse.rows.min().item<std::int64_t>();
  const auto last = sparse.rows.max().item<std::int64_t>();
  if (first < 0 || (sparse.examples > 0 && last >= sparse.examples))
    throw Error(ErrorCode::kInvalidArgument, str("SparseIds: there is no example ", first < 0 ? first : last, " of ",
                                                 std::max(sparse.examples, last + 1), "; rows begin with 0"));
}

std::int64_t count_examples(const SparseIds& sparse) {
  if (sparse.examples > 0 || sparse.rows.numel() == 0) return sparse.examples;
  return sparse.rows.max().item<std::int64_t>() + 1;
}

// The sum of the rows of each example.
at::Tensor sum_of(const at::Tensor& rows, const at::Tensor& examples, std::int64_t count) {
  auto sizes = rows.sizes().vec();
  sizes[0] = count;
  return at::zeros(sizes, rows.options()).index_add(0, examples, rows);
}

}  // namespace

at::Tensor embedding_lookup(const ShardedVariable& table, const at::Tensor& ids, std::optional<double> max_norm) {
  if (!is_of_numbers(ids))
    throw Error(ErrorCode::kInvalidArgument, "embedding_lookup: the ids must be a tensor of int32 or int64");
  auto rows = table.gather_rows(ids.reshape({-1}));
  if (max_norm) rows = shorten(rows, *max_norm);
  auto sizes = ids.sizes().vec();
  sizes.insert(sizes.end(), rows.sizes().begin() + 1, rows.sizes().end());
  return rows.reshape(sizes);
}

at::Tensor embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& sparse, Combiner combiner,
                                   std::optional<double> max_norm) {
  validate(sparse);
  const auto count = count_examples(sparse);
  // An id that many examples have is read once.
  const auto [ids, places, counts] = at::_unique2(sparse.ids, /*sorted=*/true, /*return_inverse=*/true);
  const auto table_rows = embedding_lookup(table, ids, max_norm);
  const auto examples = sparse.rows.to(table_rows.device(), at::kLong);
  const auto rows = table_rows.index_select(0, places.to(table_rows.device()));
  const auto weights = sparse.weights.defined() ? sparse.weights.to(rows.options().requires_grad(false))
                                                : at::ones({rows.size(0)}, rows.options().requires_grad(false));
  const auto sum = sum_of(rows * beside(weights, rows), examples, count);
  if (combiner == Combiner::kSum) return sum;
  const auto divisor =
      combiner == Combiner::kMean ? sum_of(weights, examples, count) : sum_of(weights * weights, examples, count).sqrt();
  const auto is_none = divisor == 0;
  return (sum / beside(divisor.masked_fill(is_none, 1), sum)).masked_fill(beside(is_none, sum), 0);
}

at::Tensor safe_embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& sparse, Combiner combiner,
                                        std::optional<double> max_norm) {
  validate(sparse);
  auto is_kept = sparse.ids >= 0;
  if (sparse.weights.defined() && combiner != Combiner::kSum) is_kept = is_kept.logical_and(sparse.weights > 0);
  const auto kept = is_kept.nonzero().squeeze(1);
  SparseIds left{sparse.rows.index_select(0, kept), sparse.ids.index_select(0, kept), {}, count_examples(sparse)};
  if (sparse.weights.defined()) left.weights = sparse.weights.index_select(0, kept);
  return embedding_lookup_sparse(table, left, combiner, max_norm);
}

}  // namespace lockstep
