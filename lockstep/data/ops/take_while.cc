#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class TakeWhileStream final : public Stream<Element> {
 public:
  TakeWhileStream(std::unique_ptr<Stream<Element>> input, const Predicate& fn) : input_(std::move(input)), fn_(fn) {}

  bool next(Element& out) override {
    if (!input_) return false;
    if (input_->next(out) && fn_(out)) return true;
    input_ = nullptr;
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("take_while");
    to.put(input_ != nullptr);
    if (input_) input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("take_while");
    if (from.flag()) input_->restore(from);
    else input_ = nullptr;
  }

 private:
  std::unique_ptr<Stream<Element>> input_;  // null: over
  const Predicate fn_;
};

class TakeWhileNode final : public UnaryNode {
 public:
  TakeWhileNode(NodePtr input, Predicate fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<TakeWhileStream>(input().open(), fn_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<TakeWhileNode>(std::move(inputs.at(0)), fn_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override {
    auto shape = input().static_shape();
    shape.asked_rows = std::nullopt;
    return shape;
  }
  std::string describe() const override { return "TakeWhile(fn)"; }

 private:
  const Predicate fn_;
};

}  // namespace

NodePtr make_take_while(NodePtr input, Predicate fn) {
  return std::make_shared<TakeWhileNode>(std::move(input), std::move(fn));
}

}  // namespace lockstep::data::internal
