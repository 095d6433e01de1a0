#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
class SkipStream final : public Stream<Item> {
 public:
  SkipStream(StreamPtr<Item> input, std::int64_t count) : input_(std::move(input)), left_(count) {}

  bool next(Item& out) override {
    if (left_ < 0) return false;
    for (; left_ > 0; --left_)
      if (!input_->next(out)) return false;
    return input_->next(out);
  }

  void save(PositionWriter& to) override {
    to.begin("skip");
    to.put(left_);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("skip");
    left_ = from.number();
    input_->restore(from);
  }

 private:
  const StreamPtr<Item> input_;
  std::int64_t left_;  // negative: all
};

class SkipNode final : public ReorderNode<SkipNode> {
 public:
  SkipNode(NodePtr input, std::int64_t count) : ReorderNode(std::move(input)), count_(count) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    return std::make_unique<SkipStream<Item>>(open_as<Item>(input()), count_);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<SkipNode>(std::move(input), count_); }
  std::int64_t cardinality() const override {
    const auto all = input().cardinality();
    if (count_ < 0) return 0;
    return all < 0 ? all : std::max<std::int64_t>(0, all - count_);
  }
  std::string describe() const override { return lockstep::str("Skip(", count_, ")"); }

 private:
  const std::int64_t count_;
};

}  // namespace

NodePtr make_skip(NodePtr input, std::int64_t count) { return std::make_shared<SkipNode>(std::move(input), count); }

}  // namespace lockstep::data::internal
