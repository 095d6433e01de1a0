#pragma once

#include <vector>

#include "lockstep/data/node.h"

// The nodes that make batches.

namespace lockstep::data::internal {

struct BatchOptions {
  std::int64_t size = 0;
  bool drop_remainder = false;
  bool is_padded = false;
};

// Throws kInvalidArgument for a size below 1.
NodePtr make_batch(NodePtr input, const BatchOptions& options);

// The input's rows in batches of these sizes, in turn, joined across the input's own batches. A size of 0 makes an empty
// batch. The last batch may be smaller, unless drop_remainder. Throws kInvalidArgument for no sizes, negative
// ones, or only zeros.
NodePtr make_rebatch(NodePtr input, std::vector<std::int64_t> sizes, bool drop_remainder);

}  // namespace lockstep::data::internal
