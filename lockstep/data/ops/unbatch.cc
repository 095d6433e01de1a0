#include "lockstep/base/error.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

class UnbatchStream final : public Stream<Element> {
 public:
  explicit UnbatchStream(std::unique_ptr<Stream<Element>> input) : input_(std::move(input)) {}

  bool next(Element& out) override {
    while (row_ == rows_) {
      if (!input_->next(batch_)) return false;
      rows_ = count_rows(batch_);
      row_ = 0;
    }
    out = copy_of(row_of(batch_, row_++));  // a row that is kept must not keep its batch
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("unbatch");
    to.put(rows_ - row_);
    if (row_ < rows_) to.put(narrow_rows(batch_, row_, rows_ - row_));
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("unbatch");
    rows_ = from.number();
    if (rows_ > 0) batch_ = from.element();
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  Element batch_;
  std::int64_t rows_ = 0;  // of batch_
  std::int64_t row_ = 0;   // the next one
};

class UnbatchNode final : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<UnbatchStream>(input().open()); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UnbatchNode>(std::move(inputs.at(0)));
  }
  std::int64_t cardinality() const override {
    const auto batches = input().cardinality();
    return batches == 0 || batches == kInfinite ? batches : kUnknown;
  }
  StaticShape static_shape() const override { return {.is_fixed = input().static_shape().is_fixed}; }
  std::string describe() const override { return "Unbatch()"; }
};

}  // namespace

NodePtr make_unbatch(NodePtr input) {
  if (input->static_shape().has_scalar)
    throw Error(ErrorCode::kInvalidArgument, "unbatch: the elements have a scalar component, which has no rows");
  return std::make_shared<UnbatchNode>(std::move(input));
}

}  // namespace lockstep::data::internal
