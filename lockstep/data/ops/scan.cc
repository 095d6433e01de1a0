#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class ScanStream final : public Stream<Element> {
 public:
  ScanStream(std::unique_ptr<Stream<Element>> input, Element state, const ScanFunction& fn)
      : input_(std::move(input)), state_(std::move(state)), fn_(fn) {}

  bool next(Element& out) override {
    Element element;
    if (!input_->next(element)) return false;
    auto [state, result] = fn_(state_, element);
    state_ = std::move(state);
    out = std::move(result);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("scan");
    to.put(state_);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("scan");
    state_ = from.element();
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  Element state_;
  const ScanFunction fn_;
};

class ScanNode final : public UnaryNode {
 public:
  ScanNode(NodePtr input, Element state, ScanFunction fn)
      : UnaryNode(std::move(input)), state_(std::move(state)), fn_(std::move(fn)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<ScanStream>(input().open(), state_, fn_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ScanNode>(std::move(inputs.at(0)), state_, fn_);
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override { return "Scan(fn)"; }

 private:
  const Element state_;
  const ScanFunction fn_;
};

}  // namespace

NodePtr make_scan(NodePtr input, Element state, ScanFunction fn) {
  return std::make_shared<ScanNode>(std::move(input), std::move(state), std::move(fn));
}

}  // namespace lockstep::data::internal
