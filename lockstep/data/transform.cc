#include "lockstep/data/transform.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

using ElementStream = std::unique_ptr<Stream<Element>>;

class MapStream final : public Stream<Element> {
 public:
  MapStream(ElementStream input, const std::function<Element(const Element&)>& fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Element& out) override {
    Element element;
    if (!input_->next(element)) return false;
    out = fn_(element);
    return true;
  }

 private:
  const ElementStream input_;
  const std::function<Element(const Element&)> fn_;
};

class MapNode final : public UnaryNode {
 public:
  MapNode(NodePtr input, std::function<Element(const Element&)> fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  ElementStream open() const override { return std::make_unique<MapStream>(input().open(), fn_); }
  NodePtr with_input(NodePtr input) const override { return std::make_shared<MapNode>(std::move(input), fn_); }
  std::int64_t cardinality() const override { return input().cardinality(); }
  // TensorFlow traces the function to know the shapes. We take it that equal shapes stay equal, and that the rows of a
  // batch of fixed size stay rows; everything else is found out when elements arrive.
  StaticShape static_shape() const override {
    const auto before = input().static_shape();
    return {.rows = before.asked_rows ? before.rows : std::nullopt, .is_fixed = before.is_fixed};
  }
  std::string describe() const override { return "Map(fn)"; }

 private:
  const std::function<Element(const Element&)> fn_;
};

class FilterStream final : public Stream<Element> {
 public:
  FilterStream(ElementStream input, const std::function<bool(const Element&)>& fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Element& out) override {
    while (input_->next(out))
      if (fn_(out)) return true;
    return false;
  }

 private:
  const ElementStream input_;
  const std::function<bool(const Element&)> fn_;
};

class FilterNode final : public UnaryNode {
 public:
  FilterNode(NodePtr input, std::function<bool(const Element&)> fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  ElementStream open() const override { return std::make_unique<FilterStream>(input().open(), fn_); }
  NodePtr with_input(NodePtr input) const override { return std::make_shared<FilterNode>(std::move(input), fn_); }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override {
    auto shape = input().static_shape();
    shape.asked_rows = std::nullopt;
    return shape;
  }
  std::string describe() const override { return "Filter(fn)"; }

 private:
  const std::function<bool(const Element&)> fn_;
};

class FlatMapStream final : public Stream<Element> {
 public:
  FlatMapStream(ElementStream input, const std::function<NodePtr(const Element&)>& fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Element& out) override {
    for (;;) {
      if (inner_ && inner_->next(out)) return true;
      inner_ = nullptr;
      Element element;
      if (!input_->next(element)) return false;
      inner_ = fn_(element)->open();
    }
  }

 private:
  const ElementStream input_;
  const std::function<NodePtr(const Element&)> fn_;
  ElementStream inner_;
};

class FlatMapNode final : public UnaryNode {
 public:
  FlatMapNode(NodePtr input, std::function<NodePtr(const Element&)> fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  ElementStream open() const override { return std::make_unique<FlatMapStream>(input().open(), fn_); }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override { return "FlatMap(fn)"; }

 private:
  const std::function<NodePtr(const Element&)> fn_;
};

class ConcatenateStream final : public Stream<Element> {
 public:
  ConcatenateStream(ElementStream first, NodePtr second) : pass_(std::move(first)), second_(std::move(second)) {}
  bool next(Element& out) override {
    if (pass_->next(out)) {
      if (!second_) check(out);
      else if (!shape_.is_known()) shape_.learn(out);
      return true;
    }
    if (!second_) return false;
    pass_ = std::exchange(second_, nullptr)->open();
    return next(out);
  }

 private:
  void check(const Element& element) {
    if (!std::exchange(is_checked_, true) && shape_.is_known()) require_same_structure(shape_.empty(), element, "concatenate");
  }

  ElementStream pass_;
  NodePtr second_;  // null once it is being read
  RowShape shape_;
  bool is_checked_ = false;
};

class ConcatenateNode final : public Node {
 public:
  ConcatenateNode(NodePtr first, NodePtr second) : first_(std::move(first)), second_(std::move(second)) {}

  ElementStream open() const override { return std::make_unique<ConcatenateStream>(first_->open(), second_); }
  std::int64_t cardinality() const override {
    const auto a = first_->cardinality();
    const auto b = second_->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    return a == kUnknown || b == kUnknown ? kUnknown : a + b;
  }
  StaticShape static_shape() const override {
    const auto a = first_->static_shape();
    const auto b = second_->static_shape();
    const bool is_same = a.rows == b.rows;
    return {.rows = is_same ? a.rows : std::nullopt,
            .is_fixed = is_same && a.is_fixed && b.is_fixed,
            .has_scalar = a.has_scalar || b.has_scalar};
  }
  std::vector<NodePtr> inputs() const override { return {first_, second_}; }
  std::string describe() const override { return "Concatenate()"; }

 private:
  const NodePtr first_, second_;
};

class ZipStream final : public Stream<Element> {
 public:
  explicit ZipStream(std::vector<ElementStream> inputs) : inputs_(std::move(inputs)) {}
  bool next(Element& out) override {
    if (is_done_) return false;
    std::vector<Component> components;
    Element part;
    for (const auto& input : inputs_) {
      if (!input->next(part)) return !(is_done_ = true);
      std::ranges::move(part.components(), std::back_inserter(components));
    }
    out = Element(std::move(components));
    return true;
  }

 private:
  const std::vector<ElementStream> inputs_;
  bool is_done_ = false;
};

class ZipNode final : public Node {
 public:
  explicit ZipNode(std::vector<NodePtr> inputs) : inputs_(std::move(inputs)) {}

  ElementStream open() const override {
    std::vector<ElementStream> streams;
    for (const auto& input : inputs_) streams.push_back(input->open());
    return std::make_unique<ZipStream>(std::move(streams));
  }
  std::int64_t cardinality() const override {
    auto shortest = kInfinite;
    for (const auto& input : inputs_) {
      const auto elements = input->cardinality();
      if (elements == kUnknown) return kUnknown;
      if (elements != kInfinite && (shortest == kInfinite || elements < shortest)) shortest = elements;
    }
    return shortest;
  }
  StaticShape static_shape() const override {
    auto shape = inputs_[0]->static_shape();
    for (const auto& input : inputs_) {
      const auto other = input->static_shape();
      if (other.rows != shape.rows) shape.rows = std::nullopt;
      if (other.batch_size() != shape.batch_size()) shape.asked_rows = std::nullopt;
      shape.is_fixed = shape.is_fixed && other.is_fixed;
      shape.has_scalar = shape.has_scalar || other.has_scalar;
    }
    return shape;
  }
  std::vector<NodePtr> inputs() const override { return inputs_; }
  std::string describe() const override { return "Zip()"; }

 private:
  const std::vector<NodePtr> inputs_;
};

}  // namespace

NodePtr make_map(NodePtr input, std::function<Element(const Element&)> fn) {
  return std::make_shared<MapNode>(std::move(input), std::move(fn));
}

NodePtr make_filter(NodePtr input, std::function<bool(const Element&)> fn) {
  return std::make_shared<FilterNode>(std::move(input), std::move(fn));
}

NodePtr make_flat_map(NodePtr input, std::function<NodePtr(const Element&)> fn) {
  return std::make_shared<FlatMapNode>(std::move(input), std::move(fn));
}

NodePtr make_concatenate(NodePtr first, NodePtr second) {
  const auto a = first->table();
  const auto b = second->table();
  if (a && b && a->rows() > 0 && b->rows() > 0) require_same_structure(a->row(0), b->row(0), "concatenate");
  return std::make_shared<ConcatenateNode>(std::move(first), std::move(second));
}

NodePtr make_zip(std::vector<NodePtr> inputs) {
  if (inputs.empty()) throw Error(ErrorCode::kInvalidArgument, "zip: no dataset was given; give at least one");
  return std::make_shared<ZipNode>(std::move(inputs));
}

}  // namespace lockstep::data::internal
