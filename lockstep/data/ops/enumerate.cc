#include <ATen/ATen.h>

#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class EnumerateStream final : public Stream<Element> {
 public:
  EnumerateStream(std::unique_ptr<Stream<Element>> input, std::int64_t start) : input_(std::move(input)), number_(start) {}

  bool next(Element& out) override {
    if (!input_->next(out)) return false;
    out.components().insert(out.components().begin(), Component{"", at::scalar_tensor(number_++, at::kLong)});
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("enumerate");
    to.put(number_);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("enumerate");
    number_ = from.number();
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  std::int64_t number_;
};

class EnumerateNode final : public UnaryNode {
 public:
  EnumerateNode(NodePtr input, std::int64_t start) : UnaryNode(std::move(input)), start_(start) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<EnumerateStream>(input().open(), start_); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<EnumerateNode>(std::move(inputs.at(0)), start_);
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return {.is_fixed = input().static_shape().is_fixed, .has_scalar = true}; }
  std::string describe() const override { return lockstep::str("Enumerate(", start_, ")"); }

 private:
  const std::int64_t start_;
};

}  // namespace

NodePtr make_enumerate(NodePtr input, std::int64_t start) { return std::make_shared<EnumerateNode>(std::move(input), start); }

}  // namespace lockstep::data::internal
