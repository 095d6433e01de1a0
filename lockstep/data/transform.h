#pragma once

#include <functional>
#include <vector>

#include "lockstep/data/node.h"

// The nodes that call user functions or combine several inputs.

namespace lockstep::data::internal {

NodePtr make_map(NodePtr input, std::function<Element(const Element&)> fn);
NodePtr make_filter(NodePtr input, std::function<bool(const Element&)> fn);
NodePtr make_flat_map(NodePtr input, std::function<NodePtr(const Element&)> fn);

// Throws kInvalidArgument when the elements of both differ in components, names or dtypes: at once if that is known,
// else when the first element of `second` is reached.
NodePtr make_concatenate(NodePtr first, NodePtr second);

// The components of one element of every input, one after the other; ends with the shortest. Throws kInvalidArgument
// for no inputs.
NodePtr make_zip(std::vector<NodePtr> inputs);

}  // namespace lockstep::data::internal
