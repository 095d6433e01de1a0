#include <set>

#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

std::string bytes_of(const Element& element) {
  PositionWriter writer;
  writer.put(element);
  return std::move(writer).take();
}

class UniqueStream final : public Stream<Element> {
 public:
  explicit UniqueStream(std::unique_ptr<Stream<Element>> input) : input_(std::move(input)) {}

  bool next(Element& out) override {
    while (input_->next(out))
      if (seen_.insert(bytes_of(out)).second) return true;
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("unique");
    to.put(static_cast<std::int64_t>(seen_.size()));
    for (const auto& one : seen_) to.put(std::string_view(one));
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("unique");
    for (auto left = from.count(); left > 0; --left) seen_.emplace(from.bytes());
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  std::set<std::string> seen_;
};

class UniqueNode final : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<UniqueStream>(input().open()); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UniqueNode>(std::move(inputs.at(0)));
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override { return "Unique()"; }
};

}  // namespace

NodePtr make_unique(NodePtr input) { return std::make_shared<UniqueNode>(std::move(input)); }

}  // namespace lockstep::data::internal
