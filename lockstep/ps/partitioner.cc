#include "lockstep/ps/partitioner.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void require_positive(const char* partitioner, const char* option, std::int64_t value) {
  if (value < 1)
    throw Error(ErrorCode::kInvalidArgument, str(partitioner, ": ", option, " is ", value, "; it must be at least 1"));
}

std::string text_of(const std::vector<std::int64_t>& numbers) { return "[" + join(", ", numbers) + "]"; }

// The size of the dimension that is to be divided.
std::int64_t size_along(const char* partitioner, const std::vector<std::int64_t>& shape, int axis) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()))
    throw Error(ErrorCode::kInvalidArgument, str(partitioner, ": there is no dimension ", axis, " in shape ", text_of(shape),
                                                 " to divide; dimensions are counted from 0"));
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 1; }))
    throw Error(ErrorCode::kInvalidArgument, str(partitioner, ": a variable of shape ", text_of(shape),
                                                 " cannot be divided; all its dimensions must be known and at least 1"));
  return shape[static_cast<std::size_t>(axis)];
}

std::int64_t bytes_of(const std::vector<std::int64_t>& shape, std::int64_t item_bytes) {
  std::int64_t bytes = item_bytes;
  for (const auto size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      throw Error(ErrorCode::kInvalidArgument,
                  str("a partitioner was asked about shape ", text_of(shape), ", which has more bytes than can be counted"));
  return bytes;
}

std::int64_t item_bytes_of(c10::ScalarType dtype, std::int64_t bytes_per_string) {
  return dtype == c10::ScalarType::Undefined ? bytes_per_string : static_cast<std::int64_t>(c10::elementSize(dtype));
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::vector<std::int64_t> ones_but(const std::vector<std::int64_t>& shape, int axis, std::int64_t shards) {
  std::vector<std::int64_t> partitions(shape.size(), 1);
  partitions[static_cast<std::size_t>(axis)] = shards;
  return partitions;
}

}  // namespace

FixedShardsPartitioner::FixedShardsPartitioner(std::int64_t num_shards) : num_shards_(num_shards) {
  require_positive("FixedShardsPartitioner", "num_shards", num_shards);
}

std::vector<std::int64_t> FixedShardsPartitioner::operator()(const std::vector<std::int64_t>& shape, c10::ScalarType /*dtype*/,
                                                             int axis) const {
  return ones_but(shape, axis, std::min(num_shards_, size_along("FixedShardsPartitioner", shape, axis)));
}

MinSizePartitioner::MinSizePartitioner(const MinSizePartitionerOptions& options) : options_(options) {
  require_positive("MinSizePartitioner", "min_shard_bytes", options.min_shard_bytes);
  require_positive("MinSizePartitioner", "max_shards", options.max_shards);
  require_positive("MinSizePartitioner", "bytes_per_string", options.bytes_per_string);
}

std::vector<std::int64_t> MinSizePartitioner::operator()(const std::vector<std::int64_t>& shape, c10::ScalarType dtype,
                                                         int axis) const {
  const auto size = size_along("MinSizePartitioner", shape, axis);
  const auto bytes = bytes_of(shape, item_bytes_of(dtype, options_.bytes_per_string));
  return ones_but(shape, axis, std::min({size, options_.max_shards, divide_up(bytes, options_.min_shard_bytes)}));
}

MaxSizePartitioner::MaxSizePartitioner(const MaxSizePartitionerOptions& options) : options_(options) {
  require_positive("MaxSizePartitioner", "max_shard_bytes", options.max_shard_bytes);
  require_positive("MaxSizePartitioner", "max_shards", options.max_shards.value_or(1));
  require_positive("MaxSizePartitioner", "bytes_per_string", options.bytes_per_string);
}

std::vector<std::int64_t> MaxSizePartitioner::operator()(const std::vector<std::int64_t>& shape, c10::ScalarType dtype,
                                                         int axis) const {
  const auto size = size_along("MaxSizePartitioner", shape, axis);
  const auto slice_bytes = bytes_of(shape, item_bytes_of(dtype, options_.bytes_per_string)) / size;
  const auto slices = std::max<std::int64_t>(1, options_.max_shard_bytes / slice_bytes);  // of one shard
  const auto shards = divide_up(size, slices);
  return ones_but(shape, axis, std::min(shards, options_.max_shards.value_or(shards)));
}

std::int64_t count_shards(const Partitioner& partitioner, const std::vector<std::int64_t>& shape, c10::ScalarType dtype) {
  if (!partitioner || shape.empty()) return 1;
  const auto answer = partitioner(shape, dtype);
  const bool is_of_rows = !answer.empty() && answer[0] >= 1 &&
                          std::all_of(answer.begin() + 1, answer.end(), [](std::int64_t shards) { return shards == 1; });
  if (!is_of_rows)
    throw Error(ErrorCode::kInvalidArgument,
                str("the partitioner answers ", text_of(answer), " for shape ", text_of(shape),
                    "; only the first dimension can be divided: answer a positive number first, then 1 for each other"));
  return std::clamp<std::int64_t>(shape[0], 1, answer[0]);
}

}  // namespace lockstep
