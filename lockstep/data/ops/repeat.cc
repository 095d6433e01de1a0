#include <limits>

#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
class RepeatStream final : public Stream<Item> {
 public:
  RepeatStream(NodePtr input, std::int64_t count) : input_(std::move(input)), left_(count) {}

  bool next(Item& out) override {
    while (left_ != 0) {
      const bool is_new_pass = !pass_;
      if (is_new_pass) pass_ = open_as<Item>(*input_);
      if (pass_->next(out)) return true;
      pass_ = nullptr;
      if (left_ > 0) --left_;
      else if (is_new_pass) left_ = 0;  // nothing in it: for ever would be for ever
    }
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("repeat");
    to.put(left_);
    to.put(pass_ != nullptr);
    put_passes(to, *input_);
    if (pass_) pass_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("repeat");
    left_ = from.number();
    if (from.flag()) pass_ = open_as<Item>(*input_);
    take_passes(from, *input_);
    if (pass_) pass_->restore(from);
  }

 private:
  const NodePtr input_;
  StreamPtr<Item> pass_;
  std::int64_t left_;  // passes, this one included; negative: for ever
};

class RepeatNode final : public ReorderNode<RepeatNode> {
 public:
  RepeatNode(NodePtr input, std::int64_t count) : ReorderNode(std::move(input)), count_(count) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    return std::make_unique<RepeatStream<Item>>(input_ptr(), count_);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<RepeatNode>(std::move(input), count_); }
  std::int64_t cardinality() const override {
    const auto once = input().cardinality();
    if (count_ == 0 || once == 0) return 0;
    if (count_ < 0) return kInfinite;
    std::int64_t all = 0;
    if (once < 0 || !__builtin_mul_overflow(once, count_, &all)) return once < 0 ? once : all;
    return std::numeric_limits<std::int64_t>::max();
  }
  std::string describe() const override { return count_ < 0 ? "Repeat()" : lockstep::str("Repeat(", count_, ")"); }

 private:
  const std::int64_t count_;
};

}  // namespace

NodePtr make_repeat(NodePtr input, std::int64_t count) { return std::make_shared<RepeatNode>(std::move(input), count); }

}  // namespace lockstep::data::internal
