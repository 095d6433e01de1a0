#include <ATen/ATen.h>

#include <atomic>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/mix.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/dice.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/ops/reorder.h"

namespace lockstep::data::internal {
namespace {

// What passes of one node share: each has another order.
struct ShufflePasses {
  std::atomic<std::uint64_t> seed;
  std::atomic<std::uint64_t> count{0};
};

template <typename Item>
class ShuffleStream final : public Stream<Item> {
 public:
  ShuffleStream(StreamPtr<Item> input, std::size_t buffer_size, std::shared_ptr<ShufflePasses> passes, std::uint64_t pass)
      : input_(std::move(input)),
        buffer_size_(buffer_size),
        passes_(std::move(passes)),
        pass_(pass),
        dice_(mix(passes_->seed.load(std::memory_order_relaxed), pass)) {}

  bool next(Item& out) override {
    fill();
    if (buffer_.empty()) return false;
    std::swap(buffer_[dice_.below(buffer_.size())], buffer_.back());
    out = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("shuffle");
    to.put(passes_->seed.load());
    to.put(passes_->count.load());
    to.put(pass_);
    dice_.save(to);
    to.put(static_cast<std::int64_t>(buffer_.size()));
    for (const auto& item : buffer_) put_item(to, item);
    to.put(input_ != nullptr);
    if (input_) input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("shuffle");
    passes_->seed = from.unsigned_number();
    passes_->count = from.unsigned_number();  // the next pass has the order that it would have had
    pass_ = from.unsigned_number();
    dice_.restore(from);
    buffer_.resize(from.count());
    for (auto& item : buffer_) item = take_item<Item>(from);
    if (from.flag()) input_->restore(from);
    else input_ = nullptr;
  }

 private:
  void fill() {
    while (input_ && buffer_.size() < buffer_size_) {
      Item item{};
      if (!input_->next(item)) input_ = nullptr;
      else buffer_.push_back(std::move(item));
    }
  }

  StreamPtr<Item> input_;  // null: at its end
  const std::size_t buffer_size_;
  const std::shared_ptr<ShufflePasses> passes_;
  std::uint64_t pass_;
  Dice dice_;
  std::vector<Item> buffer_;
};

class ShuffleNode final : public ReorderNode<ShuffleNode> {
 public:
  ShuffleNode(NodePtr input, const ShuffleOptions& options, std::uint64_t seed)
      : ReorderNode(std::move(input)), options_(options), passes_(std::make_shared<ShufflePasses>()) {
    passes_->seed = seed;
  }

  template <typename Item>
  StreamPtr<Item> open_items() const {
    const auto pass = options_.reshuffle_each_iteration ? passes_->count.fetch_add(1, std::memory_order_relaxed) : 0;
    return std::make_unique<ShuffleStream<Item>>(open_as<Item>(input()), static_cast<std::size_t>(options_.buffer_size),
                                                 passes_, pass);
  }
  NodePtr on(NodePtr input) const { return std::make_shared<ShuffleNode>(std::move(input), options_, passes_->seed.load()); }
  std::int64_t cardinality() const override { return input().cardinality(); }
  std::string describe() const override {
    return lockstep::str("Shuffle(", options_.buffer_size, options_.seed ? lockstep::str(", seed ", *options_.seed) : "",
                         options_.reshuffle_each_iteration ? ")" : ", same order in each pass)");
  }
  bool is_shuffle() const override { return true; }
  void save_passes(PositionWriter& to) const override {
    to.begin("shuffles");
    to.put(passes_->seed.load());
    to.put(passes_->count.load());
  }
  void restore_passes(PositionReader& from) const override {
    from.expect("shuffles");
    passes_->seed = from.unsigned_number();
    passes_->count = from.unsigned_number();
  }
  std::atomic<std::uint64_t>* drawn_seed() const override { return options_.seed ? nullptr : &passes_->seed; }

 private:
  const ShuffleOptions options_;
  const std::shared_ptr<ShufflePasses> passes_;
};

}  // namespace

std::uint64_t draw_seed() {
  return static_cast<std::uint64_t>(at::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::kLong).item<std::int64_t>());
}

NodePtr make_shuffle(NodePtr input, const ShuffleOptions& options) {
  if (options.buffer_size < 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("shuffle(", options.buffer_size, "): the buffer size must be at least 1"));
  return std::make_shared<ShuffleNode>(std::move(input), options, options.seed ? *options.seed : draw_seed());
}

}  // namespace lockstep::data::internal
