#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
class ShardStream final : public Stream<Item> {
 public:
  // `requires_all`: see make_required_shard.
  ShardStream(StreamPtr<Item> input, std::int64_t count, std::int64_t index, bool requires_all)
      : input_(std::move(input)), count_(count), must_check_(requires_all), to_skip_(index) {}

  bool next(Item& out) override {
    const auto index = to_skip_;
    for (; to_skip_ > 0; --to_skip_)
      if (!input_->next(out)) return false;
    to_skip_ = count_ - 1;
    if (!input_->next(out)) return false;
    if (std::exchange(must_check_, false)) require_rest(index + 1);
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("shard");
    to.put(to_skip_);
    to.put(must_check_);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("shard");
    to_skip_ = from.number();
    must_check_ = from.flag();
    input_->restore(from);
  }

 private:
  // The elements up to the last shard's first one, which would be skipped next.
  void require_rest(std::int64_t seen) {
    Item other{};
    for (; seen < count_; ++seen, --to_skip_)
      if (!input_->next(other)) throw Error(ErrorCode::kInvalidArgument, too_few_for_shards(seen, count_));
  }

  const StreamPtr<Item> input_;
  const std::int64_t count_;
  bool must_check_;
  std::int64_t to_skip_;  // before the next one that is ours
};

class ShardNode final : public ReorderNode<ShardNode> {
 public:
  ShardNode(NodePtr input, std::int64_t count, std::int64_t index, bool requires_all)
      : ReorderNode(std::move(input)), count_(count), index_(index), requires_all_(requires_all) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    if (count_ == kShardHint)
      throw Error(
          ErrorCode::kFailedPrecondition,
          "shard(kShardHint, ...) has no number of shards of its own: distribute the dataset with the auto shard policy "
          "HINT, or give a number");
    return std::make_unique<ShardStream<Item>>(open_as<Item>(input()), count_, index_, requires_all_);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<ShardNode>(std::move(input), count_, index_, requires_all_); }
  std::int64_t cardinality() const override {
    const auto all = input().cardinality();
    if (count_ == kShardHint) return all < 0 ? all : kUnknown;
    return all < 0 ? all : all / count_ + (index_ < all % count_ ? 1 : 0);
  }
  std::string describe() const override {
    return count_ == kShardHint ? "Shard(hint)" : lockstep::str("Shard(", count_, ", ", index_, ")");
  }
  NodePtr hinted(std::int64_t count, std::int64_t index) const override {
    return count_ == kShardHint ? std::make_shared<ShardNode>(input_ptr(), count, index, false) : nullptr;
  }

 private:
  const std::int64_t count_, index_;
  const bool requires_all_;
};

}  // namespace

NodePtr make_shard(NodePtr input, std::int64_t count, std::int64_t index) {
  const bool is_hint = count == kShardHint;
  if (!is_hint && (count < 1 || index < 0 || index >= count))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("shard(", count, ", ", index,
                              "): there must be at least one shard, and the index be one of them, from 0"));
  return std::make_shared<ShardNode>(std::move(input), count, index, /*requires_all=*/false);
}

NodePtr make_required_shard(NodePtr input, std::int64_t count, std::int64_t index) {
  return std::make_shared<ShardNode>(std::move(input), count, index, /*requires_all=*/true);
}

std::string too_few_for_shards(std::int64_t elements, std::int64_t shards) {
  return lockstep::str("auto sharding: the dataset has ", elements, " file(s) or element(s), too few for ", shards,
                       " workers; use more files, or the auto shard policy DATA or OFF");
}

}  // namespace lockstep::data::internal
