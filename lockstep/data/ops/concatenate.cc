#include <limits>
#include <utility>

#include "lockstep/data/ops/ops.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

class ConcatenateStream final : public Stream<Element> {
 public:
  ConcatenateStream(NodePtr first, NodePtr second) : pass_(first->open()), second_(std::move(second)) {}

  bool next(Element& out) override {
    if (pass_->next(out)) {
      if (is_second_) check(out);
      else if (like_.empty()) like_ = out;
      return true;
    }
    if (is_second_) return false;
    open_second();
    return next(out);
  }

  void save(PositionWriter& to) override {
    to.begin("concatenate");
    to.put(is_second_);
    if (is_second_) put_passes(to, *second_);
    pass_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("concatenate");
    if (from.flag()) {
      open_second();
      take_passes(from, *second_);
    }
    pass_->restore(from);
  }

 private:
  void open_second() {
    pass_ = second_->open();
    is_second_ = true;
  }

  void check(const Element& element) {
    if (!std::exchange(is_checked_, true) && !like_.empty()) require_same_structure(like_, element, "concatenate");
  }

  std::unique_ptr<Stream<Element>> pass_;
  const NodePtr second_;
  bool is_second_ = false;  // it is being read
  Element like_;            // the first one
  bool is_checked_ = false;
};

class ConcatenateNode final : public Node {
 public:
  ConcatenateNode(NodePtr first, NodePtr second) : first_(std::move(first)), second_(std::move(second)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<ConcatenateStream>(first_, second_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ConcatenateNode>(std::move(inputs.at(0)), std::move(inputs.at(1)));
  }
  std::int64_t cardinality() const override {
    const auto a = first_->cardinality();
    const auto b = second_->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    if (a == kUnknown || b == kUnknown) return kUnknown;
    return a > std::numeric_limits<std::int64_t>::max() - b ? std::numeric_limits<std::int64_t>::max() : a + b;
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

}  // namespace

NodePtr make_concatenate(NodePtr first, NodePtr second) {
  const auto a = first->table();
  const auto b = second->table();
  if (a && b && a->rows() > 0 && b->rows() > 0) require_same_structure(a->row(0), b->row(0), "concatenate");
  return std::make_shared<ConcatenateNode>(std::move(first), std::move(second));
}

}  // namespace lockstep::data::internal
