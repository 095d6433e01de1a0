#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

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

  void save(PositionWriter& to) override {
    to.begin("rebatch");
    to.put(static_cast<std::int64_t>(turn_));
    to.put(is_done_);
    to.put(shape_.is_known());
    if (shape_.is_known()) to.put(shape_.empty());
    to.put(left_);
    if (left_ > 0) to.put(narrow_rows(batch_, position_, left_));
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("rebatch");
    turn_ = static_cast<std::size_t>(from.number());
    is_done_ = from.flag();
    if (from.flag()) shape_.learn(from.element());
    left_ = from.number();
    if (left_ > 0) batch_ = from.element();
    input_->restore(from);
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
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<RebatchNode>(std::move(inputs.at(0)), sizes_, drop_remainder_);
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

NodePtr make_rebatch(NodePtr input, std::vector<std::int64_t> sizes, bool drop_remainder) {
  if (sizes.empty() || std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; }) ||
      std::ranges::all_of(sizes, [](std::int64_t size) { return size == 0; }))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("rebatch(", name_sizes(sizes), "): sizes of 0 or more are needed, at least one of them above 0"));
  return std::make_shared<RebatchNode>(std::move(input), std::move(sizes), drop_remainder);
}

}  // namespace lockstep::data::internal
