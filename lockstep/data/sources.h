#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/node.h"

// The nodes without inputs.

namespace lockstep::data::internal {

// Elements start, start + step, ... below (above, for a negative step) stop. Throws kInvalidArgument for step 0.
NodePtr make_range(std::int64_t start, std::int64_t stop, std::int64_t step);

// One element.
NodePtr make_tensors(Element element);

// One element per row. Throws kInvalidArgument for no component, a scalar, or different numbers of rows.
NodePtr make_slices(const Element& components);

// The rows of a table. `name` begins the node's description; `shape` is that of one row.
NodePtr make_rows(std::string name, std::shared_ptr<const Table> table, StaticShape shape);

// The records of TFRecord files, one after the other.
NodePtr make_records(std::vector<std::string> files);

// The same pipeline over every count-th of its files, beginning with file `index`; null when it does not read files, or not
// in one row of operations. Throws kInvalidArgument when there are too few.
NodePtr shard_files(const NodePtr& node, int count, int index);

// `start` is called at the beginning of every pass; what it returns is called until it gives nothing.
using Generator = std::function<std::optional<Element>()>;
NodePtr make_generator(std::function<Generator()> start);

}  // namespace lockstep::data::internal
