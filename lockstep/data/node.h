#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/element.h"
#include "lockstep/data/position.h"

// What a dataset is made of. Users hold data::Dataset; whoever adds an operation writes a Node and a Stream.

namespace lockstep::data {

// What cardinality() says when there is no number to say.
constexpr std::int64_t kInfinite = -1;
constexpr std::int64_t kUnknown = -2;

// Where a number of threads or elements is asked for: what turns out to be good.
constexpr int kAutotune = -1;

// shard(kShardHint, ...): the auto shard policy HINT puts the number of workers here.
constexpr std::int64_t kShardHint = -1;

}  // namespace lockstep::data

namespace lockstep::data::internal {

// One pass over the items of a node. Used by one thread at a time.
template <typename Item>
class Stream {
 public:
  virtual ~Stream() = default;
  // False at the end, and then for ever. Throws what went wrong upstream; the stream must not be used after that.
  virtual bool next(Item& out) = 0;
  // Where the pass is. restore() is called once, on a new stream of an equal node, before anything else: what follows is what
  // would have followed. Not after next() has thrown.
  virtual void save(PositionWriter& to) = 0;
  virtual void restore(PositionReader& from) = 0;
  // How many items are made and wait to be asked for; none: they are made when they are asked for.
  virtual std::optional<std::size_t> ready() const { return std::nullopt; }
};

// The rows that some nodes hand out, in memory or computed. Immutable.
//
// Note [row path]
// 1. Nodes that only choose and reorder (slices, range, shuffle, take, skip, shard, repeat) pass row numbers of one table on
//    (open_rows) instead of an element per row.
// 2. batch() asks for as many numbers as it needs and gathers them with one copy per component and row, no tensor per row.
// 3. map() in parallel takes numbers too, and makes elements where it maps them. Every other node asks for elements (open).
// 4. In the same way byte strings that are read from files (records, lines) go through those nodes as they are (open_texts),
// and
//    batch() collects them.
class Table {
 public:
  virtual ~Table() = default;
  virtual std::int64_t rows() const = 0;
  // New memory: what the user does to it does not reach the table.
  virtual Element row(std::int64_t row) const = 0;
  // The same, in the memory of an earlier row of this table, which is all that `out` may hold, where nobody else has it.
  virtual void read_row(std::int64_t row, Element& out) const { out = this->row(row); }
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

  // Of a node whose passes differ, or remember another one: what the next pass depends on. See Note [passes].
  virtual void save_passes(PositionWriter&) const {}
  virtual void restore_passes(PositionReader&) const {}

  // Of a source that reads files: which, and the same with others. Null: no files.
  virtual const std::vector<std::string>* files() const { return nullptr; }
  virtual std::shared_ptr<const Node> with_files(std::vector<std::string> files) const { return nullptr; }

  // The same operation on other inputs, as many as inputs() has.
  virtual std::shared_ptr<const Node> with_inputs(std::vector<std::shared_ptr<const Node>> inputs) const = 0;

  // Of shard(kShardHint, ...): the same with these. Null: another node.
  virtual std::shared_ptr<const Node> hinted(std::int64_t count, std::int64_t index) const { return nullptr; }

  // What auto sharding must know: of shuffle(), and of what gives its input's elements as they are, at most earlier.
  virtual bool is_shuffle() const { return false; }
  virtual bool is_only_ahead() const { return false; }
  // Whether its inputs are read on another thread than the one that asks.
  virtual bool has_own_thread() const { return false; }

  // Of a node that reads datasets which a function makes of its input's elements: that function.
  virtual const std::function<std::shared_ptr<const Node>(const Element&)>* dataset_function() const { return nullptr; }

  // See Note [row path]. When there is a table, open_rows() must give a stream.
  virtual std::shared_ptr<const Table> table() const { return nullptr; }
  virtual std::unique_ptr<Stream<std::int64_t>> open_rows() const { return nullptr; }
  // Whether its elements are one byte string each, without a name, which open_texts() must give then.
  virtual bool has_texts() const { return false; }
  virtual std::unique_ptr<Stream<std::string>> open_texts() const { return nullptr; }
};

// The node, then its inputs, and theirs.
void for_each_node(const Node& node, const std::function<void(const Node&)>& visit);

// Note [passes]
// 1. A shuffle counts its passes, since each has another order; a cache keeps what a pass gave. Streams say in their positions
//    which pass they are, but one that is at its end may be gone. So iterators, and streams that open several passes, also save
//    what all nodes behind them know.
// 2. It is restored after the pass was opened, which counts too, and before the pass is restored, which knows better.
void put_passes(PositionWriter& to, const Node& node);
void take_passes(PositionReader& from, const Node& node);
// For iterators: with what the pipeline is. Throws kInvalidArgument when it is another one, or has other data.
void put_pipeline(PositionWriter& to, const Node& node);
void take_pipeline(PositionReader& from, const Node& node);

// The node and its inputs as a tree, a line each, the node first.
std::string describe_pipeline(const Node& node);

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
