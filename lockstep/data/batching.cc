#include "lockstep/data/batching.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
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

 private:
  const std::shared_ptr<const Table> table_;
  const std::unique_ptr<Stream<std::int64_t>> rows_;
  const BatchOptions options_;
  std::vector<std::int64_t> batch_;
};

class StackStream final : public Stream<Element> {
 public:
  StackStream(std::unique_ptr<Stream<Element>> input, const BatchOptions& options)
      : input_(std::move(input)), options_(options) {}

  bool next(Element& out) override {
    batch_.clear();
    Element element;
    while (static_cast<std::int64_t>(batch_.size()) < options_.size && input_->next(element))
      batch_.push_back(std::move(element));
    if (batch_.empty()) return false;
    if (options_.drop_remainder && static_cast<std::int64_t>(batch_.size()) < options_.size) return false;
    out = options_.is_padded ? stack_padded_rows(batch_) : stack_rows(batch_);
    return true;
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;
  const BatchOptions options_;
  std::vector<Element> batch_;
};

class BatchNode final : public UnaryNode {
 public:
  BatchNode(NodePtr input, const BatchOptions& options) : UnaryNode(std::move(input)), options_(options) {}

  std::unique_ptr<Stream<Element>> open() const override {
    // The rows of a table have one shape: nothing to pad.
    if (auto table = input().table()) return std::make_unique<GatherStream>(std::move(table), input().open_rows(), options_);
    return std::make_unique<StackStream>(input().open(), options_);
  }

  NodePtr with_input(NodePtr input) const override { return std::make_shared<BatchNode>(std::move(input), options_); }
  std::int64_t cardinality() const override {
    const auto elements = input().cardinality();
    if (elements < 0) return elements;
    return elements / options_.size + (options_.drop_remainder || elements % options_.size == 0 ? 0 : 1);
  }

  StaticShape static_shape() const override {
    return {.rows = options_.drop_remainder ? std::optional(options_.size) : std::nullopt,
            .asked_rows = options_.size,
            .is_fixed = options_.drop_remainder && input().static_shape().is_fixed};
  }

  std::string describe() const override {
    return lockstep::str(options_.is_padded ? "PaddedBatch(" : "Batch(", options_.size,
                         options_.drop_remainder ? ", drop_remainder)" : ")");
  }

 private:
  const BatchOptions options_;
};

class RebatchStream final : public Stream<Element> {
 public:
  RebatchStream(std::unique_ptr<Stream<Element>> input, std::vector<std::int64_t> sizes, bool drop_remainder)
      : input_(std::move(input)), sizes_(std::move(sizes)), drop_remainder_(drop_remainder) {}

  bool next(Element& out) override {
    if (is_done_) return false;
    const auto size = sizes_[turn_++ % sizes_.size()];
    // An empty batch needs to know how the rows look, so the first batch is read even for a leading size of 0.
    if (size == 0 && (shape_.is_known() || read_batch())) {
      out = shape_.empty();
      return true;
    }
    const auto rows = collect(size);
    is_done_ = rows < size || size == 0;
    if (rows == 0 || (drop_remainder_ && rows < size)) return false;
    out = join_rows(pieces_);
    pieces_.clear();
    return true;
  }

 private:
  bool read_batch() {
    // A batch without rows gives nothing to anybody.
    do {
      if (!input_->next(batch_)) return false;
      left_ = count_rows(batch_);
      position_ = 0;
      shape_.learn(batch_);
    } while (left_ == 0);
    return true;
  }

  std::int64_t collect(std::int64_t size) {
    pieces_.clear();
    std::int64_t rows = 0;
    while (rows < size && (left_ > 0 || read_batch())) {
      const auto length = std::min(size - rows, left_);
      pieces_.push_back(narrow_rows(batch_, position_, length));
      position_ += length;
      left_ -= length;
      rows += length;
    }
    return rows;
  }

  const std::unique_ptr<Stream<Element>> input_;
  const std::vector<std::int64_t> sizes_;
  const bool drop_remainder_;
  RowShape shape_;
  Element batch_;              // the batch being used up:
  std::int64_t position_ = 0;  // its first row not given out,
  std::int64_t left_ = 0;      // and how many there are
  std::vector<Element> pieces_;
  std::size_t turn_ = 0;
  bool is_done_ = false;
};

class RebatchNode final : public UnaryNode {
 public:
  RebatchNode(NodePtr input, std::vector<std::int64_t> sizes, bool drop_remainder)
      : UnaryNode(std::move(input)), sizes_(std::move(sizes)), drop_remainder_(drop_remainder) {}

  std::unique_ptr<Stream<Element>> open() const override {
    return std::make_unique<RebatchStream>(input().open(), sizes_, drop_remainder_);
  }
  NodePtr with_input(NodePtr input) const override {
    return std::make_shared<RebatchNode>(std::move(input), sizes_, drop_remainder_);
  }
  std::int64_t cardinality() const override {
    const auto batches = input().cardinality();
    return batches == kInfinite ? kInfinite : kUnknown;
  }
  StaticShape static_shape() const override {
    const bool is_even = drop_remainder_ && std::ranges::all_of(sizes_, [&](std::int64_t size) { return size == sizes_[0]; });
    return {.rows = is_even ? std::optional(sizes_[0]) : std::nullopt, .is_fixed = is_even && input().static_shape().is_fixed};
  }
  std::string describe() const override {
    return lockstep::str("Rebatch(", join(", ", sizes_), drop_remainder_ ? ", drop_remainder)" : ")");
  }

 private:
  const std::vector<std::int64_t> sizes_;
  const bool drop_remainder_;
};

}  // namespace

NodePtr make_batch(NodePtr input, const BatchOptions& options) {
  if (options.size < 1)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(options.is_padded ? "padded_batch(" : "batch(", options.size,
                                                           "): the batch size must be at least 1"));
  return std::make_shared<BatchNode>(std::move(input), options);
}

NodePtr make_rebatch(NodePtr input, std::vector<std::int64_t> sizes, bool drop_remainder) {
  if (sizes.empty() || std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; }) ||
      std::ranges::all_of(sizes, [](std::int64_t size) { return size == 0; }))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("rebatch(", name_sizes(sizes), "): sizes of 0 or more are needed, at least one of them above 0"));
  return std::make_shared<RebatchNode>(std::move(input), std::move(sizes), drop_remainder);
}

}  // namespace lockstep::data::internal
