#include "lockstep/data/sources.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fetch_early.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

class RangeTable final : public Table {
 public:
  RangeTable(std::int64_t start, std::int64_t step, std::int64_t rows) : start_(start), step_(step), rows_(rows) {}

  std::int64_t rows() const override { return rows_; }
  Element row(std::int64_t row) const override {
    auto value = at::detail::empty_cpu({}, at::kLong);  // without the dispatcher, which takes longer than everything else here
    *value.data_ptr<std::int64_t>() = at(row);
    return Element(std::move(value));
  }
  void read_row(std::int64_t row, Element& out) const override {
    if (!is_unshared_scalar(out)) out = this->row(row);
    else *out.components()[0].tensor().data_ptr<std::int64_t>() = at(row);
  }
  Element gather(std::span<const std::int64_t> rows) const override {
    auto values = new_batch({static_cast<std::int64_t>(rows.size())}, at::kLong);
    std::ranges::transform(rows, values.data_ptr<std::int64_t>(), [&](std::int64_t row) { return at(row); });
    return Element(std::move(values));
  }

 private:
  // Nobody else holds the tensor or its memory.
  static bool is_unshared_scalar(const Element& element) {
    if (element.size() != 1 || element.components()[0].is_bytes()) return false;
    const auto& tensor = element.components()[0].tensor();
    return tensor.defined() && tensor.scalar_type() == at::kLong && tensor.dim() == 0 && tensor.device().is_cpu() &&
           tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  }

  // Unsigned: the way to a value may leave the range of int64.
  std::int64_t at(std::int64_t row) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(start_) +
                                     static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(step_));
  }

  const std::int64_t start_, step_, rows_;
};

class TensorTable final : public Table {
 public:
  explicit TensorTable(const Element& components) : rows_(count_rows(components)) {
    for (const auto& component : components.components()) {
      auto column = component;
      if (column.is_bytes()) require_whole(column.bytes(), "from_tensor_slices");
      else column.value = in_memory(component.tensor().detach());
      columns_.push_back(std::move(column));
    }
  }

  std::int64_t rows() const override { return rows_; }

  Element row(std::int64_t row) const override { return only_row(gather({&row, 1})); }

  Element gather(std::span<const std::int64_t> rows) const override {
    std::vector<Component> gathered;
    gathered.reserve(columns_.size());
    for (const auto& column : columns_) {
      if (column.is_bytes()) gathered.push_back({column.name, gather_bytes(column.bytes(), rows)});
      else gathered.push_back({column.name, gather_tensor(column.tensor(), rows)});
    }
    return Element(std::move(gathered));
  }

 private:
  static Bytes gather_bytes(const Bytes& column, std::span<const std::int64_t> rows) {
    Bytes gathered{{}, column.sizes};
    gathered.sizes[0] = static_cast<std::int64_t>(rows.size());
    const auto stride = static_cast<std::int64_t>(column.values.size()) / std::max<std::int64_t>(1, column.sizes[0]);
    for (const auto row : rows)
      gathered.values.insert(gathered.values.end(), column.values.begin() + row * stride,
                             column.values.begin() + (row + 1) * stride);
    return gathered;
  }

  static at::Tensor gather_tensor(const at::Tensor& column, std::span<const std::int64_t> rows) {
    if (!column.device().is_cpu()) {
      const auto index = at::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()), at::kLong);
      return column.index_select(0, index.to(column.device()));
    }
    auto sizes = column.sizes().vec();
    sizes[0] = static_cast<std::int64_t>(rows.size());
    auto gathered = new_batch(sizes, column.options());
    const auto row_bytes = column.size(0) == 0 ? 0 : column.nbytes() / static_cast<std::size_t>(column.size(0));
    const auto* from = static_cast<const char*>(column.data_ptr());
    auto* to = static_cast<char*>(gathered.data_ptr());
    // One core, one copy a row: index_select would wake the intra-op threads that the replicas compute with.
    for (std::size_t i = 0; i < rows.size(); ++i, to += row_bytes) {
      if (i + 1 < rows.size()) fetch_early(from + static_cast<std::size_t>(rows[i + 1]) * row_bytes, row_bytes);
      std::memcpy(to, from + static_cast<std::size_t>(rows[i]) * row_bytes, row_bytes);
    }
    return gathered;
  }

  const std::int64_t rows_;
  std::vector<Component> columns_;  // tensors contiguous
};

class AllRows final : public Stream<std::int64_t> {
 public:
  explicit AllRows(std::int64_t rows) : rows_(rows) {}
  bool next(std::int64_t& out) override {
    if (position_ >= rows_) return false;
    out = position_++;
    return true;
  }
  void save(PositionWriter& to) override {
    to.begin("rows");
    to.put(position_);
  }
  void restore(PositionReader& from) override {
    from.expect("rows");
    position_ = std::clamp<std::int64_t>(from.number(), 0, rows_);
  }

 private:
  const std::int64_t rows_;
  std::int64_t position_ = 0;
};

class AllRowElements final : public Stream<Element> {
 public:
  explicit AllRowElements(std::shared_ptr<const Table> table) : table_(std::move(table)), rows_(table_->rows()) {}
  bool next(Element& out) override {
    std::int64_t row = 0;
    if (!rows_.next(row)) return false;
    out = table_->row(row);
    return true;
  }
  void save(PositionWriter& to) override { rows_.save(to); }
  void restore(PositionReader& from) override { rows_.restore(from); }

 private:
  const std::shared_ptr<const Table> table_;
  AllRows rows_;
};

class RowsNode final : public Node {
 public:
  RowsNode(std::string name, std::shared_ptr<const Table> table, StaticShape shape)
      : name_(std::move(name)), table_(std::move(table)), shape_(shape) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<AllRowElements>(table_); }
  std::int64_t cardinality() const override { return table_->rows(); }
  StaticShape static_shape() const override { return shape_; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<RowsNode>(*this); }
  std::vector<NodePtr> inputs() const override { return {}; }
  std::string describe() const override { return name_; }
  std::shared_ptr<const Table> table() const override { return table_; }
  std::unique_ptr<Stream<std::int64_t>> open_rows() const override { return std::make_unique<AllRows>(table_->rows()); }

 private:
  const std::string name_;
  const std::shared_ptr<const Table> table_;
  const StaticShape shape_;
};

class OneElement final : public Stream<Element> {
 public:
  explicit OneElement(Element element) : element_(std::move(element)) {}
  bool next(Element& out) override {
    if (std::exchange(is_done_, true)) return false;
    for (auto& component : element_.components())
      if (!component.is_bytes()) component.value = component.tensor().clone();  // the source stays as it is
    out = std::move(element_);
    return true;
  }
  void save(PositionWriter& to) override {
    to.begin("tensors");
    to.put(is_done_);
  }
  void restore(PositionReader& from) override {
    from.expect("tensors");
    is_done_ = from.flag();
  }

 private:
  Element element_;
  bool is_done_ = false;
};

// `first` is the dimension that counts rows: 0 of a whole element, 1 of a table's column.
StaticShape shape_of(const Element& element, std::size_t first) {
  StaticShape shape{.is_fixed = true};
  bool is_first = true;
  for (const auto& component : element.components()) {
    const auto sizes = component.sizes();
    if (sizes.size() <= first) shape.has_scalar = true;
    const auto rows = sizes.size() > first ? std::optional(sizes[first]) : std::nullopt;
    shape.rows = is_first || shape.rows == rows ? rows : std::nullopt;
    is_first = false;
  }
  if (shape.has_scalar) shape.rows = std::nullopt;
  return shape;
}

class TensorsNode final : public Node {
 public:
  explicit TensorsNode(Element element) : element_(std::move(element)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<OneElement>(element_); }
  std::int64_t cardinality() const override { return 1; }
  StaticShape static_shape() const override { return shape_of(element_, 0); }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<TensorsNode>(*this); }
  std::vector<NodePtr> inputs() const override { return {}; }
  std::string describe() const override { return lockstep::str("Tensors(", element_, ")"); }

 private:
  const Element element_;
};

class GeneratorStream final : public Stream<Element> {
 public:
  explicit GeneratorStream(Generator generator) : generator_(std::move(generator)) {}
  bool next(Element& out) override {
    if (!generator_) return false;
    auto element = generator_();
    if (!element) {
      generator_ = nullptr;
      return false;
    }
    ++given_;
    out = std::move(*element);
    return true;
  }

  // What the function keeps is not known: it is called again as often.
  void save(PositionWriter& to) override {
    to.begin("generator");
    to.put(given_);
    to.put(generator_ != nullptr);
  }
  void restore(PositionReader& from) override {
    from.expect("generator");
    const auto given = from.number();
    const bool is_over = !from.flag();
    Element element;
    while (given_ < given)
      if (!next(element))
        throw Error(ErrorCode::kFailedPrecondition,
                    lockstep::str("the generator gave ", given_, " elements, and the saved position is after ", given));
    if (is_over) generator_ = nullptr;
  }

 private:
  Generator generator_;
  std::int64_t given_ = 0;
};

class GeneratorNode final : public Node {
 public:
  explicit GeneratorNode(std::function<Generator()> start) : start_(std::move(start)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<GeneratorStream>(start_()); }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {}; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<GeneratorNode>(*this); }
  std::vector<NodePtr> inputs() const override { return {}; }
  std::string describe() const override { return "Generator()"; }

 private:
  const std::function<Generator()> start_;
};

std::int64_t count_range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // Unsigned: the distance of two int64 may not fit into one.
  const auto distance = step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                 : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
  const auto stride = step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
  const auto count = (distance - 1) / stride + 1;
  if (count > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("range(", start, ", ", stop, ", ", step, ") has ", count,
                                                           " elements, more than can be counted; use a larger step"));
  return static_cast<std::int64_t>(count);
}

void require_components(const Element& element, const char* what) {
  if (element.empty()) throw Error(ErrorCode::kInvalidArgument, lockstep::str(what, ": no tensor was given"));
  for (std::size_t c = 0; c < element.size(); ++c)
    if (!element.components()[c].is_bytes() && !element[c].defined())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str(what, ": ", name_component(element, c), " is an undefined tensor; give it a value"));
    else if (!element.components()[c].is_bytes()) require_dense(element[c], what);
}

}  // namespace

NodePtr make_rows(std::string name, std::shared_ptr<const Table> table, StaticShape shape) {
  return std::make_shared<RowsNode>(std::move(name), std::move(table), shape);
}

NodePtr make_range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step == 0) throw Error(ErrorCode::kInvalidArgument, "range: the step must not be 0");
  return make_rows(lockstep::str("Range(", start, ", ", stop, ", ", step, ")"),
                   std::make_shared<RangeTable>(start, step, count_range(start, stop, step)),
                   {.is_fixed = true, .has_scalar = true});
}

NodePtr make_tensors(Element element) {
  require_components(element, "from_tensors");
  return std::make_shared<TensorsNode>(std::move(element));
}

NodePtr make_slices(const Element& components) {
  require_components(components, "from_tensor_slices");
  for (std::size_t c = 0; c < components.size(); ++c)
    if (components.components()[c].sizes().empty())
      throw Error(ErrorCode::kInvalidArgument, lockstep::str("from_tensor_slices: ", name_component(components, c),
                                                             " is a scalar; it has no rows to slice"));
  auto table = std::make_shared<TensorTable>(components);
  return make_rows(lockstep::str("TensorSlices(", components, ")"), std::move(table), shape_of(components, 1));
}

NodePtr make_generator(std::function<Generator()> start) {
  if (!start) throw Error(ErrorCode::kInvalidArgument, "from_generator: the function is empty");
  return std::make_shared<GeneratorNode>(std::move(start));
}

}  // namespace lockstep::data::internal
