#include <algorithm>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class ZipStream final : public Stream<Element> {
 public:
  explicit ZipStream(std::vector<std::unique_ptr<Stream<Element>>> inputs) : inputs_(std::move(inputs)) {}

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

  void save(PositionWriter& to) override {
    to.begin("zip");
    to.put(is_done_);
    for (const auto& input : inputs_)
      if (!is_done_) input->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("zip");
    is_done_ = from.flag();
    for (const auto& input : inputs_)
      if (!is_done_) input->restore(from);
  }

 private:
  const std::vector<std::unique_ptr<Stream<Element>>> inputs_;
  bool is_done_ = false;
};

class ZipNode final : public Node {
 public:
  explicit ZipNode(std::vector<NodePtr> inputs) : inputs_(std::move(inputs)) {}

  std::unique_ptr<Stream<Element>> open() const override {
    std::vector<std::unique_ptr<Stream<Element>>> streams;
    for (const auto& input : inputs_) streams.push_back(input->open());
    return std::make_unique<ZipStream>(std::move(streams));
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override { return std::make_shared<ZipNode>(std::move(inputs)); }
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

NodePtr make_zip(std::vector<NodePtr> inputs) {
  if (inputs.empty()) throw Error(ErrorCode::kInvalidArgument, "zip: no dataset was given; give at least one");
  return std::make_shared<ZipNode>(std::move(inputs));
}

}  // namespace lockstep::data::internal
