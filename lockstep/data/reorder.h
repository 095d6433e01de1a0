#pragma once

#include <optional>

#include "lockstep/data/node.h"

// The nodes that only choose and reorder elements; see Note [row path] in node.h.

namespace lockstep::data::internal {

// The first `count` elements; -1: all. Throws kInvalidArgument below -1.
NodePtr make_take(NodePtr input, std::int64_t count);

// All but the first `count` elements; negative: none.
NodePtr make_skip(NodePtr input, std::int64_t count);

// The input `count` times; negative: for ever (an input without elements still ends).
NodePtr make_repeat(NodePtr input, std::int64_t count);

struct ShuffleOptions {
  std::int64_t buffer_size = 0;
  std::optional<std::uint64_t> seed = std::nullopt;
  bool reshuffle_each_iteration = true;
};

// A buffer is filled, then an element drawn from it at random and replaced by the next one, until all are drawn.
// Throws kInvalidArgument for a buffer size below 1.
NodePtr make_shuffle(NodePtr input, const ShuffleOptions& options);

}  // namespace lockstep::data::internal
