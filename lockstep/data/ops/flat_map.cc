#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class FlatMapStream final : public Stream<Element> {
 public:
  FlatMapStream(std::unique_ptr<Stream<Element>> input, const DatasetFunction& fn) : input_(std::move(input)), fn_(fn) {}

  bool next(Element& out) override {
    for (;;) {
      if (inner_ && inner_->next(out)) return true;
      inner_ = nullptr;
      if (!input_->next(made_of_)) return false;
      inner_ = fn_(made_of_)->open();
    }
  }

  void save(PositionWriter& to) override {
    to.begin("flat_map");
    input_->save(to);
    to.put(inner_ != nullptr);
    if (!inner_) return;
    to.put(made_of_);
    inner_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("flat_map");
    input_->restore(from);
    if (!from.flag()) return;
    made_of_ = from.element();
    inner_ = fn_(made_of_)->open();
    inner_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const DatasetFunction fn_;
  Element made_of_;
  std::unique_ptr<Stream<Element>> inner_;  // of fn_(made_of_)
};

class FlatMapNode final : public UnaryNode {
 public:
  FlatMapNode(NodePtr input, DatasetFunction fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<FlatMapStream>(input().open(), fn_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<FlatMapNode>(std::move(inputs.at(0)), fn_);
  }
  std::int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override { return "FlatMap(fn)"; }
  const DatasetFunction* dataset_function() const override { return &fn_; }

 private:
  const DatasetFunction fn_;
};

}  // namespace

NodePtr make_flat_map(NodePtr input, DatasetFunction fn) {
  return std::make_shared<FlatMapNode>(std::move(input), std::move(fn));
}

}  // namespace lockstep::data::internal
