#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/pool.h"

namespace lockstep::data::internal {
namespace {

std::size_t bytes_of(const Element& element) {
  std::size_t bytes = 0;
  for (const auto& component : element.components()) {
    if (!component.is_bytes()) bytes += component.tensor().defined() ? component.tensor().nbytes() : 0;
    else
      for (const auto& value : component.bytes().values) bytes += value.size();
  }
  return bytes;
}

// Functions give tensors that are there.
Element call(const ElementFunction& fn, const Element& element) {
  auto result = fn(element);
  for (const auto& component : result.components())
    if (!component.is_bytes() && !component.tensor().defined())
      throw Error(ErrorCode::kInvalidArgument, "map: the function gave an undefined tensor; give one with a value");
  return result;
}

// Some elements that one task maps, in place. The task's alone until it is done, then the iterating thread's.
struct MapPiece {
  std::vector<Element> elements = {};
  std::vector<std::int64_t> rows = {};  // instead of elements that are not mapped yet; empty: they are elements
  std::size_t mapped = 0;               // those before it are results, the others what is to be mapped
  std::size_t handed_out = 0;
  std::exception_ptr failure = nullptr;  // of element `mapped`
  std::shared_ptr<Task> task = nullptr;
};

// What is mapped. Rows of a table become elements where they are mapped: memory is freed best by the thread that took it.
class MapInput {
 public:
  explicit MapInput(const Node& node) : table_(node.table()) {
    if (table_) rows_ = node.open_rows();
    else elements_ = node.open();
  }

  // The next one; `memory` holds nothing but what this gave before.
  bool next(Element& memory) {
    if (!table_) return elements_->next(memory);
    std::int64_t row = 0;
    if (!rows_->next(row)) return false;
    table_->read_row(row, memory);
    return true;
  }

  // Up to `size` more. False: they are fewer, and the last.
  bool read(MapPiece& piece, std::size_t size) {
    if (table_) {
      for (std::int64_t row = 0; piece.rows.size() < size && rows_->next(row);) piece.rows.push_back(row);
      piece.elements.resize(piece.rows.size());
    } else {
      for (Element element; piece.elements.size() < size && elements_->next(element);)
        piece.elements.push_back(std::move(element));
    }
    return piece.elements.size() == size;
  }

  // Element i of a piece: a result, or what is to be mapped. `memory` is for rows.
  const Element& element(const MapPiece& piece, std::size_t i, Element& memory) const {
    if (i < piece.mapped || piece.rows.empty()) return piece.elements[i];
    table_->read_row(piece.rows[i], memory);
    return memory;
  }

  void save(PositionWriter& to) {
    if (table_) rows_->save(to);
    else elements_->save(to);
  }
  void restore(PositionReader& from) {
    if (table_) rows_->restore(from);
    else elements_->restore(from);
  }

 private:
  const std::shared_ptr<const Table> table_;
  std::unique_ptr<Stream<std::int64_t>> rows_;  // of the table
  std::unique_ptr<Stream<Element>> elements_;   // without one
};

class MapStream final : public Stream<Element> {
 public:
  MapStream(const Node& input, const ElementFunction& fn) : input_(input), fn_(fn) {}

  bool next(Element& out) override {
    if (!input_.next(element_)) return false;
    out = call(fn_, element_);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("map");
    input_.save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("map");
    input_.restore(from);
  }

 private:
  MapInput input_;
  const ElementFunction fn_;
  Element element_;  // kept: its memory can be used again
};

// Note [map in parallel]
// 1. The thread that iterates reads the input and cuts it into pieces, which the pool maps; so neither the input nor the
//    position needs a lock. Two pieces more than run at once are kept ready.
// 2. A piece has as many elements as take about kPieceTime to map, as the last ones did (a task costs a few microseconds), and
//    not more than kPieceBytes.
// 3. In order, the oldest piece is waited for, and mapped by whoever waits if nobody has begun it. Out of order, any that is
//    finished is handed out first.
// 4. What was thrown is thrown when its element's turn comes. A position holds what is mapped as results and the rest as input.
class ParallelMapStream final : public Stream<Element> {
 public:
  ParallelMapStream(const Node& input, const ElementFunction& fn, const MapOptions& options)
      : input_(input), fn_(fn), options_(options) {}
  ~ParallelMapStream() override {
    for (const auto& piece : pieces_) piece->task->drop("map");
  }

  bool next(Element& out) override {
    for (;;) {
      read_ahead();
      if (pieces_.empty()) {
        if (input_failure_) std::rethrow_exception(input_failure_);
        return false;
      }
      auto& piece = choose();
      if (piece->handed_out < piece->mapped) {
        out = std::move(piece->elements[piece->handed_out++]);
        return true;
      }
      if (piece->failure) std::rethrow_exception(piece->failure);
      pieces_.erase(std::ranges::find(pieces_, piece));
    }
  }

  std::optional<std::size_t> ready() const override {
    std::size_t elements = 0;
    for (const auto& piece : pieces_)
      if (piece->task->is_done()) elements += piece->mapped - piece->handed_out;
    return elements;
  }

  void save(PositionWriter& to) override {
    if (input_failure_) std::rethrow_exception(input_failure_);  // where the input is cannot be said any more
    to.begin("parallel_map");
    Element memory;
    to.put(static_cast<std::int64_t>(pieces_.size()));
    for (const auto& piece : pieces_) {
      piece->task->finish("map");
      to.put(static_cast<std::int64_t>(piece->mapped - piece->handed_out));
      to.put(static_cast<std::int64_t>(piece->elements.size() - piece->handed_out));
      for (auto i = piece->handed_out; i < piece->elements.size(); ++i) to.put(input_.element(*piece, i, memory));
    }
    to.put(!is_at_end_);
    if (!is_at_end_) input_.save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("parallel_map");
    for (auto left = from.count(); left > 0; --left) {
      auto piece = std::make_unique<MapPiece>();
      const auto mapped = from.number();
      piece->elements.resize(from.count());
      piece->mapped = std::min(static_cast<std::size_t>(mapped), piece->elements.size());
      for (auto& element : piece->elements) element = from.element();
      if (!piece->elements.empty()) submit(std::move(piece));
    }
    is_at_end_ = !from.flag();
    if (!is_at_end_) input_.restore(from);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kPieceTime{200};
  static constexpr std::size_t kLargestPiece = 256;
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  void read_ahead() {
    while (!is_at_end_ && pieces_.size() < static_cast<std::size_t>(options_.parallel) + 2) {
      auto piece = std::make_unique<MapPiece>();
      try {
        is_at_end_ = !input_.read(*piece, piece_size_.load(std::memory_order_relaxed));
      } catch (...) {
        input_failure_ = std::current_exception();
        is_at_end_ = true;
      }
      if (!piece->elements.empty()) submit(std::move(piece));
    }
  }

  void submit(std::unique_ptr<MapPiece> piece) {
    piece->task = std::make_shared<Task>([this, work = piece.get()] { map(*work); });
    Pool::instance().submit(piece->task);
    pieces_.push_back(std::move(piece));
  }

  void map(MapPiece& piece) noexcept {
    const at::ThreadLocalStateGuard guard(settings_);
    const auto begin = Clock::now();
    const auto before = piece.mapped;
    auto bytes = bytes_of(piece.elements.back());  // what was read may be larger than what is made of it
    Element memory;
    try {
      for (; piece.mapped < piece.elements.size(); ++piece.mapped)
        piece.elements[piece.mapped] = call(fn_, input_.element(piece, piece.mapped, memory));
    } catch (...) {
      piece.failure = std::current_exception();
    }
    const auto count = piece.mapped - before;
    if (count == 0) return;
    bytes = std::max(bytes, bytes_of(piece.elements[before]));
    const auto each = std::max<Clock::duration>((Clock::now() - begin) / static_cast<int>(count), std::chrono::nanoseconds(1));
    const auto most = std::clamp<std::size_t>(kPieceBytes / std::max<std::size_t>(1, bytes), 1, kLargestPiece);
    piece_size_.store(std::clamp<std::size_t>(static_cast<std::size_t>(kPieceTime / each), 1, most), std::memory_order_relaxed);
  }

  // A piece that is finished.
  std::unique_ptr<MapPiece>& choose() {
    if (!options_.is_ordered) {
      const auto done = std::ranges::find_if(pieces_, [](const auto& piece) { return piece->task->is_done(); });
      if (done != pieces_.end()) return *done;
    }
    pieces_.front()->task->finish("map");
    return pieces_.front();
  }

  MapInput input_;          // read by the iterating thread; tasks only look at its table
  bool is_at_end_ = false;  // of the input
  // Used by all.
  const ElementFunction fn_;
  const MapOptions options_;
  const at::ThreadLocalState settings_;
  std::deque<std::unique_ptr<MapPiece>> pieces_;
  std::exception_ptr input_failure_;  // after all pieces
  std::atomic<std::size_t> piece_size_{1};
};

class MapNode final : public UnaryNode {
 public:
  MapNode(NodePtr input, ElementFunction fn, const MapOptions& options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), options_(options) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (options_.parallel == 1) return std::make_unique<MapStream>(input(), fn_);
    auto options = options_;
    if (options.parallel == kAutotune) options.parallel = Pool::instance().good_parallelism();
    return std::make_unique<ParallelMapStream>(input(), fn_, options);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<MapNode>(std::move(inputs.at(0)), fn_, options_);
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  // TensorFlow traces the function to know the shapes. We take it that equal shapes stay equal, and that the rows of a
  // batch of fixed size stay rows; everything else is found out when elements arrive.
  StaticShape static_shape() const override {
    const auto before = input().static_shape();
    return {.rows = before.asked_rows ? before.rows : std::nullopt, .is_fixed = before.is_fixed};
  }
  // The same on all machines: workers compare it.
  std::string describe() const override {
    if (options_.parallel == 1) return "Map(fn)";
    const auto calls = options_.parallel == kAutotune ? "autotune" : lockstep::str(options_.parallel, " at once");
    return lockstep::str("Map(fn, ", calls, options_.is_ordered ? ")" : ", in any order)");
  }

 private:
  const ElementFunction fn_;
  const MapOptions options_;
};

}  // namespace

NodePtr make_map(NodePtr input, ElementFunction fn, const MapOptions& options) {
  if (options.parallel < 1 && options.parallel != kAutotune)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("map: ", options.parallel, " calls at once; give 1 or more, or kAutotune"));
  return std::make_shared<MapNode>(std::move(input), std::move(fn), options);
}

}  // namespace lockstep::data::internal
