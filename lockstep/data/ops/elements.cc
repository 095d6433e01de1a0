#include "lockstep/data/ops/elements.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

class ElementsStream final : public Stream<Element> {
 public:
  explicit ElementsStream(std::shared_ptr<const std::vector<Element>> elements) : elements_(std::move(elements)) {}

  bool next(Element& out) override {
    if (position_ == elements_->size()) return false;
    out = copy_of((*elements_)[position_++]);  // windows overlap, and are read again
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("elements");
    to.put(static_cast<std::int64_t>(position_));
  }
  void restore(PositionReader& from) override {
    from.expect("elements");
    position_ = std::min(static_cast<std::size_t>(from.number()), elements_->size());
  }

 private:
  const std::shared_ptr<const std::vector<Element>> elements_;
  std::size_t position_ = 0;
};

class ElementsNode final : public Node {
 public:
  explicit ElementsNode(std::vector<Element> elements)
      : elements_(std::make_shared<const std::vector<Element>>(std::move(elements))) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<ElementsStream>(elements_); }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<ElementsNode>(*elements_); }
  std::int64_t cardinality() const override { return static_cast<std::int64_t>(elements_->size()); }
  StaticShape static_shape() const override { return {}; }
  std::vector<NodePtr> inputs() const override { return {}; }
  std::string describe() const override { return lockstep::str("Elements(", elements_->size(), ")"); }

 private:
  const std::shared_ptr<const std::vector<Element>> elements_;
};

}  // namespace

NodePtr make_elements(std::vector<Element> elements) { return std::make_shared<ElementsNode>(std::move(elements)); }

std::vector<Element> take_elements(PositionReader& from) {
  std::vector<Element> elements(from.count());
  for (auto& element : elements) element = from.element();
  return elements;
}

}  // namespace lockstep::data::internal
