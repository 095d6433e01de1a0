#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/csv_options.h"
#include "lockstep/data/io/fixed_records.h"
#include "lockstep/data/node.h"
#include "lockstep/data/read_options.h"

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

// What files hold, one file after the other, as byte strings.
NodePtr make_tf_records(std::vector<std::string> files, const ReadOptions& options);
NodePtr make_text_lines(std::vector<std::string> files, const ReadOptions& options);
NodePtr make_fixed_records(std::vector<std::string> files, const FixedLengths& lengths, const ReadOptions& options);

// Rows as elements with one component for each column.
NodePtr make_csv(std::vector<std::string> files, std::vector<CsvColumn> columns, const CsvOptions& options);

// `start` is called at the beginning of every pass; what it returns is called until it gives nothing.
using Generator = std::function<std::optional<Element>()>;
NodePtr make_generator(std::function<Generator()> start);

}  // namespace lockstep::data::internal
