#include "lockstep/data/ops/batching.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class PaddedBatchStream final : public BatchingStream<Element, PaddedBatchOptions> {
 public:
  using BatchingStream::BatchingStream;

  bool next(Element& out) override {
    batch_.clear();
    Element element;
    while (static_cast<std::int64_t>(batch_.size()) < options_.size && input_->next(element))
      batch_.push_back(std::move(element));
    if (!is_batch(static_cast<std::int64_t>(batch_.size()))) return false;
    out = stack_padded_rows(batch_, options_.shapes, options_.value);
    return true;
  }

 private:
  std::vector<Element> batch_;
};

class PaddedBatchNode final : public BatchingNode<PaddedBatchOptions> {
 public:
  PaddedBatchNode(NodePtr input, PaddedBatchOptions options)
      : BatchingNode("padded_batch", "PaddedBatch", std::move(input), std::move(options)) {}

  std::unique_ptr<Stream<Element>> open() const override {
    return std::make_unique<PaddedBatchStream>("padded_batch", input().open(), options_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PaddedBatchNode>(std::move(inputs.at(0)), options_);
  }
};

}  // namespace

NodePtr make_padded_batch(NodePtr input, const PaddedBatchOptions& options) {
  return std::make_shared<PaddedBatchNode>(std::move(input), options);
}

}  // namespace lockstep::data::internal
