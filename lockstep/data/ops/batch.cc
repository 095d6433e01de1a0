#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/row_stack.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

// Collects rows by number, then gathers them; see Note [row path].
class GatherStream final : public Stream<Element> {
 public:
  GatherStream(std::shared_ptr<const Table> table, std::unique_ptr<Stream<std::int64_t>> rows, const BatchOptions& options)
      : table_(std::move(table)), rows_(std::move(rows)), options_(options) {}

  bool next(Element& out) override {
    batch_.clear();
    std::int64_t row = 0;
    while (static_cast<std::int64_t>(batch_.size()) < options_.size && rows_->next(row)) batch_.push_back(row);
    if (batch_.empty()) return false;
    if (options_.drop_remainder && static_cast<std::int64_t>(batch_.size()) < options_.size) return false;
    out = table_->gather(batch_);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("batch");
    rows_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("batch");
    rows_->restore(from);
  }

 private:
  const std::shared_ptr<const Table> table_;
  const std::unique_ptr<Stream<std::int64_t>> rows_;
  const BatchOptions options_;
  std::vector<std::int64_t> batch_;
};

// Takes byte strings as they are.
class TextStream final : public Stream<Element> {
 public:
  TextStream(std::unique_ptr<Stream<std::string>> texts, const BatchOptions& options)
      : texts_(std::move(texts)), options_(options) {}

  bool next(Element& out) override {
    Bytes batch;
    const auto size = static_cast<std::size_t>(options_.size);
    batch.values.reserve(std::min(size, kFirstRows));
    for (std::string text; batch.values.size() < size && texts_->next(text);) batch.values.push_back(std::move(text));
    if (batch.values.empty() || (options_.drop_remainder && batch.values.size() < size)) return false;
    batch.sizes = {static_cast<std::int64_t>(batch.values.size())};
    out = Element(std::vector<Component>(1));
    out.components()[0].value = std::move(batch);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("batch");
    texts_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("batch");
    texts_->restore(from);
  }

 private:
  static constexpr std::size_t kFirstRows = 1024;

  const std::unique_ptr<Stream<std::string>> texts_;
  const BatchOptions options_;
};

class StackStream final : public Stream<Element> {
 public:
  StackStream(std::unique_ptr<Stream<Element>> input, const BatchOptions& options)
      : input_(std::move(input)), options_(options) {}

  bool next(Element& out) override {
    RowStack batch(options_.size);
    for (Element element; batch.rows() < options_.size && input_->next(element);) batch.add(std::move(element));
    if (batch.rows() == 0 || (options_.drop_remainder && batch.rows() < options_.size)) return false;
    out = std::move(batch).take();
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("batch");
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("batch");
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const BatchOptions options_;
};

class BatchNode final : public UnaryNode {
 public:
  BatchNode(NodePtr input, const BatchOptions& options) : UnaryNode(std::move(input)), options_(options) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (auto table = input().table()) return std::make_unique<GatherStream>(std::move(table), input().open_rows(), options_);
    if (input().has_texts()) return std::make_unique<TextStream>(input().open_texts(), options_);
    return std::make_unique<StackStream>(input().open(), options_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<BatchNode>(std::move(inputs.at(0)), options_);
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
    return lockstep::str("Batch(", options_.size, options_.drop_remainder ? ", drop_remainder)" : ")");
  }

 private:
  const BatchOptions options_;
};

}  // namespace

NodePtr make_batch(NodePtr input, const BatchOptions& options) {
  if (options.size < 1)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("batch(", options.size, "): the batch size must be at least 1"));
  return std::make_shared<BatchNode>(std::move(input), options);
}

}  // namespace lockstep::data::internal
