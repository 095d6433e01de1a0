#include "lockstep/data/ops/buckets.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {

NodePtr make_buckets(NodePtr input, KeyFunction length, std::vector<std::int64_t> boundaries, std::vector<std::int64_t> sizes,
                     const Buckets& options) {
  const bool are_positive = std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
  if (sizes.size() != boundaries.size() + 1 || !are_positive || !std::ranges::is_sorted(boundaries))
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str("bucket_by_sequence_length(boundaries ", name_sizes(boundaries), ", batch sizes ", name_sizes(sizes),
                      "): the boundaries must rise, and there must be one batch size above 0 more than boundaries"));
  const auto bucket_of = [length = std::move(length), boundaries = std::move(boundaries)](const Element& element) {
    return std::ranges::upper_bound(boundaries, length(element)) - boundaries.begin();
  };
  const auto size_of = [sizes](std::int64_t bucket) { return sizes[static_cast<std::size_t>(bucket)]; };
  const auto batch = [size_of, options](std::int64_t bucket, NodePtr window) {
    return make_padded_batch(std::move(window),
                             {size_of(bucket), options.drop_remainder, options.padding.shapes, options.padding.value});
  };
  return make_group_by_window(std::move(input), bucket_of, size_of, batch);
}

}  // namespace lockstep::data::internal
