#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class FilterStream final : public Stream<Element> {
 public:
  FilterStream(std::unique_ptr<Stream<Element>> input, const Predicate& fn) : input_(std::move(input)), fn_(fn) {}

  bool next(Element& out) override {
    while (input_->next(out))
      if (fn_(out)) return true;
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("filter");
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("filter");
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const Predicate fn_;
};

class FilterNode final : public UnaryNode {
 public:
  FilterNode(NodePtr input, Predicate fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<FilterStream>(input().open(), fn_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<FilterNode>(std::move(inputs.at(0)), fn_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override {
    auto shape = input().static_shape();
    shape.asked_rows = std::nullopt;
    return shape;
  }
  std::string describe() const override { return "Filter(fn)"; }

 private:
  const Predicate fn_;
};

}  // namespace

NodePtr make_filter(NodePtr input, Predicate fn) { return std::make_shared<FilterNode>(std::move(input), std::move(fn)); }

}  // namespace lockstep::data::internal
