#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/element.h"

// What a dataset is made of. Users hold data::Dataset; whoever adds an operation writes a Node and a Stream.

namespace lockstep::data {

// What cardinality() says when there is no number to say.
constexpr std::int64_t kInfinite = -1;
constexpr std::int64_t kUnknown = -2;

}  // namespace lockstep::data

namespace lockstep::data::internal {

// One pass over the items of a node. Used by one thread at a time.
template <typename Item>
class Stream {
 public:
  virtual ~Stream() = default;
  // False at the end, and then for ever. Throws what went wrong upstream; the stream must not be used after that.
  virtual bool next(Item& out) = 0;
};

// The rows that some nodes hand out, in memory or computed. Immutable.
//
// Note [row path]
// 1. Nodes that only choose and reorder (slices, range, shuffle, take, skip, repeat) pass row numbers of one table on
//    (open_rows) instead of an element per row.
// 2. batch() asks for as many numbers as it needs and gathers them with one copy per component and row, no tensor per row.
// 3. Every other node asks for elements (open), and each row then becomes an element of its own.
class Table {
 public:
  virtual ~Table() = default;
  virtual std::int64_t rows() const = 0;
  // New memory: what the user does to it does not reach the table.
  virtual Element row(std::int64_t row) const = 0;
  virtual Element gather(std::span<const std::int64_t> rows) const = 0;
};

// What is known of a node's elements before one is made.
struct StaticShape {
  // The first dimension of all components of all elements.
  std::optional<std::int64_t> rows = std::nullopt;
  // What the last batch() was asked for: `rows` of all but the last element.
  std::optional<std::int64_t> asked_rows = std::nullopt;
  // All elements have the same shapes.
  bool is_fixed = false;
  // Some component has no dimension at all, so that it cannot be split.
  bool has_scalar = false;

  // The global batch size, as far as it can be inferred.
  std::optional<std::int64_t> batch_size() const { return rows ? rows : asked_rows; }
};

class Node;
using NodePtr = std::shared_ptr<const Node>;

// A source or an operation on other nodes. Immutable, shared by the datasets built on it, usable by several threads.
class Node {
 public:
  virtual ~Node() = default;

  // Starts a new pass.
  virtual std::unique_ptr<Stream<Element>> open() const = 0;
  virtual std::int64_t cardinality() const = 0;
  virtual StaticShape static_shape() const = 0;
  virtual std::vector<NodePtr> inputs() const = 0;
  // One line without the inputs: "Batch(64)".
  virtual std::string describe() const = 0;

  // Of a node that drew a seed because it was given none: where it is, for workers who must agree before their first pass.
  virtual std::atomic<std::uint64_t>* drawn_seed() const { return nullptr; }

  // Of a source that reads files: the same with every count-th of them, beginning with file `index`. Null: no files. Throws
  // kInvalidArgument when there are fewer files than parts.
  virtual std::shared_ptr<const Node> file_part(int count, int index) const { return nullptr; }

  // The same operation on another input. Null: a node that cannot say (a source, one with several inputs).
  virtual std::shared_ptr<const Node> with_input(std::shared_ptr<const Node> input) const { return nullptr; }

  // See Note [row path]. When there is a table, open_rows() must give a stream.
  virtual std::shared_ptr<const Table> table() const { return nullptr; }
  virtual std::unique_ptr<Stream<std::int64_t>> open_rows() const { return nullptr; }
};

// The base of nodes with one input.
class UnaryNode : public Node {
 public:
  explicit UnaryNode(NodePtr input) : input_(std::move(input)) {}
  std::vector<NodePtr> inputs() const override { return {input_}; }

 protected:
  const Node& input() const noexcept { return *input_; }
  const NodePtr& input_ptr() const noexcept { return input_; }

 private:
  const NodePtr input_;
};

}  // namespace lockstep::data::internal
