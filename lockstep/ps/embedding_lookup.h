#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "lockstep/ps/sharded_variable.h"

// Rows of a table that is divided over shards. One read for each shard that has any of them.

namespace lockstep {

// The rows with these ids, which are whole numbers in any shape: of ids of shape [2, 3] and a table of shape [100, 8] it is
// [2, 3, 8]. Rows longer than max_norm are shortened to it. Throws kInvalidArgument for an id that is not there.
at::Tensor embedding_lookup(const ShardedVariable& table, const at::Tensor& ids, std::optional<double> max_norm = std::nullopt);

// Examples with any number of ids each: ids[k] is one of example rows[k].
struct SparseIds {
  at::Tensor rows;            // one dimension, int32 or int64, in any order
  at::Tensor ids;             // as many
  at::Tensor weights = {};    // as many; undefined: 1 each
  std::int64_t examples = 0;  // 0: up to the last that has ids
};

// How the rows of one example become one: their weighted sum, that divided by the sum of the weights, or by the root of the sum
// of their squares.
enum class Combiner { kSum, kMean, kSqrtn };

// One row for each example; zeros where an example has no ids, or its weights are no divisor.
at::Tensor embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& sparse, Combiner combiner = Combiner::kMean,
                                   std::optional<double> max_norm = std::nullopt);

// The same without the ids below 0 and, but for kSum, without those whose weight is not above 0.
at::Tensor safe_embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& sparse,
                                        Combiner combiner = Combiner::kMean, std::optional<double> max_norm = std::nullopt);

}  // namespace lockstep
