#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

// Into how many shards a variable is divided. A partitioner is asked with the shape and the dtype of a variable, and answers
// with a number for each dimension: 1, but for the one that is divided. Of byte strings the dtype is Undefined.
//
// Those here have a third argument: which dimension to divide. They throw kInvalidArgument for what can only be a mistake: an
// option below 1, a dimension that is not there, and a shape with a dimension below 1, of which nothing can be divided.

namespace lockstep {

// One's own may be any function. A strategy divides the first dimension only.
using Partitioner = std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>& shape, c10::ScalarType dtype)>;

// Always as many, or one for each row where these are fewer.
class FixedShardsPartitioner {
 public:
  explicit FixedShardsPartitioner(std::int64_t num_shards);
  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, c10::ScalarType dtype, int axis = 0) const;

 private:
  std::int64_t num_shards_;
};

struct MinSizePartitionerOptions {
  std::int64_t min_shard_bytes = 256 << 10;
  std::int64_t max_shards = 1;  // nothing is divided unless it is set
  std::int64_t bytes_per_string = 16;
};

// As many as there are min_shard_bytes in the variable, begun ones too, up to max_shards.
class MinSizePartitioner {
 public:
  explicit MinSizePartitioner(const MinSizePartitionerOptions& options = {});
  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, c10::ScalarType dtype, int axis = 0) const;

 private:
  MinSizePartitionerOptions options_;
};

struct MaxSizePartitionerOptions {
  std::int64_t max_shard_bytes = 0;                       // must be given
  std::optional<std::int64_t> max_shards = std::nullopt;  // absent: any number. It wins over max_shard_bytes
  std::int64_t bytes_per_string = 16;
};

// As few as possible with at most max_shard_bytes each; a row is never divided.
class MaxSizePartitioner {
 public:
  explicit MaxSizePartitioner(const MaxSizePartitionerOptions& options);
  std::vector<std::int64_t> operator()(const std::vector<std::int64_t>& shape, c10::ScalarType dtype, int axis = 0) const;

 private:
  MaxSizePartitionerOptions options_;
};

// How many shards a variable gets: 1 when it is not to be divided, never more than it has rows. An empty partitioner, and a
// variable of no dimension, mean 1. Throws kInvalidArgument for an answer that divides another dimension than the first, or
// into less than one shard.
std::int64_t count_shards(const Partitioner& partitioner, const std::vector<std::int64_t>& shape, c10::ScalarType dtype);

}  // namespace lockstep
