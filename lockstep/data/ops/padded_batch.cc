#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

class PaddedBatchStream final : public Stream<Element> {
 public:
  PaddedBatchStream(std::unique_ptr<Stream<Element>> input, const PaddedBatchOptions& options)
      : input_(std::move(input)), options_(options) {}

  bool next(Element& out) override {
    batch_.clear();
    Element element;
    while (static_cast<std::int64_t>(batch_.size()) < options_.size && input_->next(element))
      batch_.push_back(std::move(element));
    if (batch_.empty()) return false;
    if (options_.drop_remainder && static_cast<std::int64_t>(batch_.size()) < options_.size) return false;
    out = stack_padded_rows(batch_, options_.shapes, options_.value);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("padded_batch");
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("padded_batch");
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const PaddedBatchOptions options_;
  std::vector<Element> batch_;
};

class PaddedBatchNode final : public UnaryNode {
 public:
  PaddedBatchNode(NodePtr input, PaddedBatchOptions options) : UnaryNode(std::move(input)), options_(std::move(options)) {}

  std::unique_ptr<Stream<Element>> open() const override {
    return std::make_unique<PaddedBatchStream>(input().open(), options_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PaddedBatchNode>(std::move(inputs.at(0)), options_);
  }
  std::int64_t cardinality() const override {
    return count_batches(input().cardinality(), options_.size, options_.drop_remainder);
  }
  StaticShape static_shape() const override {
    return {.rows = options_.drop_remainder ? std::optional(options_.size) : std::nullopt,
            .asked_rows = options_.size,
            .is_fixed = options_.drop_remainder && input().static_shape().is_fixed};
  }
  std::string describe() const override {
    return lockstep::str("PaddedBatch(", options_.size, options_.drop_remainder ? ", drop_remainder)" : ")");
  }

 private:
  const PaddedBatchOptions options_;
};

}  // namespace

NodePtr make_padded_batch(NodePtr input, const PaddedBatchOptions& options) {
  if (options.size < 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("padded_batch(", options.size, "): the batch size must be at least 1"));
  return std::make_shared<PaddedBatchNode>(std::move(input), options);
}

}  // namespace lockstep::data::internal
