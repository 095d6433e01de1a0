#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
class TakeStream final : public Stream<Item> {
 public:
  TakeStream(StreamPtr<Item> input, std::int64_t count) : input_(std::move(input)), left_(count) {}

  bool next(Item& out) override {
    if (left_ == 0 || !input_->next(out)) return false;
    if (--left_ == 0) input_ = nullptr;  // lets a prefetch thread behind it go
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("take");
    to.put(left_);
    if (left_ != 0) input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("take");
    left_ = from.number();
    if (left_ != 0) input_->restore(from);
    else input_ = nullptr;
  }

 private:
  StreamPtr<Item> input_;
  std::int64_t left_;  // negative: all
};

class TakeNode final : public ReorderNode<TakeNode> {
 public:
  TakeNode(NodePtr input, std::int64_t count) : ReorderNode(std::move(input)), count_(count) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    return std::make_unique<TakeStream<Item>>(open_as<Item>(input()), count_);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<TakeNode>(std::move(input), count_); }
  std::int64_t cardinality() const override {
    const auto all = input().cardinality();
    if (count_ < 0) return all;
    if (count_ == 0 || all == kInfinite) return count_;
    return all == kUnknown ? kUnknown : std::min(all, count_);
  }
  std::string describe() const override { return lockstep::str("Take(", count_, ")"); }

 private:
  const std::int64_t count_;
};

}  // namespace

NodePtr make_take(NodePtr input, std::int64_t count) {
  if (count < -1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("take(", count, "): the count must be 0 or more, or -1 for all elements"));
  return std::make_shared<TakeNode>(std::move(input), count);
}

}  // namespace lockstep::data::internal
