#include <algorithm>

#include "lockstep/data/ops/batching.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/row_stack.h"

namespace lockstep::data::internal {
namespace {

// Collects rows by number, then gathers them; see Note [row path].
class GatherStream final : public BatchingStream<std::int64_t, BatchOptions> {
 public:
  GatherStream(std::shared_ptr<const Table> table, StreamPtr<std::int64_t> rows, const BatchOptions& options)
      : BatchingStream("batch", std::move(rows), options), table_(std::move(table)) {}

  bool next(Element& out) override {
    batch_.clear();
    std::int64_t row = 0;
    while (static_cast<std::int64_t>(batch_.size()) < options_.size && input_->next(row)) batch_.push_back(row);
    if (!is_batch(static_cast<std::int64_t>(batch_.size()))) return false;
    out = table_->gather(batch_);
    return true;
  }

 private:
  const std::shared_ptr<const Table> table_;
  std::vector<std::int64_t> batch_;
};

// Takes byte strings as they are.
class TextStream final : public BatchingStream<std::string, BatchOptions> {
 public:
  using BatchingStream::BatchingStream;

  bool next(Element& out) override {
    Bytes batch;
    const auto size = static_cast<std::size_t>(options_.size);
    batch.values.reserve(std::min(size, kFirstRows));
    for (std::string text; batch.values.size() < size && input_->next(text);) batch.values.push_back(std::move(text));
    batch.sizes = {static_cast<std::int64_t>(batch.values.size())};
    if (!is_batch(batch.sizes[0])) return false;
    out = Element(std::vector<Component>(1));
    out.components()[0].value = std::move(batch);
    return true;
  }

 private:
  static constexpr std::size_t kFirstRows = 1024;
};

class StackStream final : public BatchingStream<Element, BatchOptions> {
 public:
  using BatchingStream::BatchingStream;

  bool next(Element& out) override {
    RowStack batch(options_.size);
    for (Element element; batch.rows() < options_.size && input_->next(element);) batch.add(std::move(element));
    if (!is_batch(batch.rows())) return false;
    out = std::move(batch).take();
    return true;
  }
};

class BatchNode final : public BatchingNode<BatchOptions> {
 public:
  BatchNode(NodePtr input, const BatchOptions& options) : BatchingNode("batch", "Batch", std::move(input), options) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (auto table = input().table()) return std::make_unique<GatherStream>(std::move(table), input().open_rows(), options_);
    if (input().has_texts()) return std::make_unique<TextStream>("batch", input().open_texts(), options_);
    return std::make_unique<StackStream>("batch", input().open(), options_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<BatchNode>(std::move(inputs.at(0)), options_);
  }
};

}  // namespace

NodePtr make_batch(NodePtr input, const BatchOptions& options) {
  return std::make_shared<BatchNode>(std::move(input), options);
}

}  // namespace lockstep::data::internal
