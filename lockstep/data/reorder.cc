#include "lockstep/data/reorder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/mix.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
using StreamPtr = std::unique_ptr<Stream<Item>>;

template <typename Item>
StreamPtr<Item> open_as(const Node& node) {
  if constexpr (std::is_same_v<Item, Element>) return node.open();
  else return node.open_rows();
}

// The base of the nodes below: Derived::open_items<Item>() makes its stream for elements and for row numbers alike.
template <typename Derived>
class ReorderNode : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;

  StreamPtr<Element> open() const override { return derived().template open_items<Element>(); }
  StreamPtr<std::int64_t> open_rows() const override {
    if (!table()) return nullptr;
    return derived().template open_items<std::int64_t>();
  }
  std::shared_ptr<const Table> table() const override { return input().table(); }
  StaticShape static_shape() const override { return input().static_shape(); }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

template <typename Item>
class TakeStream final : public Stream<Item> {
 public:
  TakeStream(StreamPtr<Item> input, std::int64_t count) : input_(std::move(input)), left_(count) {}
  bool next(Item& out) override {
    if (left_ == 0 || !input_->next(out)) return false;
    if (--left_ == 0) input_ = nullptr;  // lets a prefetch thread behind it go
    return true;
  }

 private:
  StreamPtr<Item> input_;
  std::int64_t left_;
};

class TakeNode final : public ReorderNode<TakeNode> {
 public:
  TakeNode(NodePtr input, std::int64_t count) : ReorderNode(std::move(input)), count_(count) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    return std::make_unique<TakeStream<Item>>(open_as<Item>(input()), count_);
  }
  NodePtr with_input(NodePtr input) const override { return std::make_shared<TakeNode>(std::move(input), count_); }
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

 private:
  const StreamPtr<Item> input_;
  std::int64_t left_;
};

class SkipNode final : public ReorderNode<SkipNode> {
 public:
  SkipNode(NodePtr input, std::int64_t count) : ReorderNode(std::move(input)), count_(count) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    return std::make_unique<SkipStream<Item>>(open_as<Item>(input()), count_);
  }
  NodePtr with_input(NodePtr input) const override { return std::make_shared<SkipNode>(std::move(input), count_); }
  std::int64_t cardinality() const override {
    const auto all = input().cardinality();
    if (count_ < 0) return 0;
    return all < 0 ? all : std::max<std::int64_t>(0, all - count_);
  }
  std::string describe() const override { return lockstep::str("Skip(", count_, ")"); }

 private:
  const std::int64_t count_;
};

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
  NodePtr with_input(NodePtr input) const override { return std::make_shared<RepeatNode>(std::move(input), count_); }
  std::int64_t cardinality() const override {
    const auto once = input().cardinality();
    if (count_ == 0 || once == 0) return 0;
    if (count_ < 0) return kInfinite;
    return once < 0 ? once : once * count_;
  }
  std::string describe() const override { return count_ < 0 ? "Repeat()" : lockstep::str("Repeat(", count_, ")"); }

 private:
  const std::int64_t count_;
};

// Random numbers in [0, bound) that are the same with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    const auto limit = std::numeric_limits<std::uint64_t>::max() - std::numeric_limits<std::uint64_t>::max() % bound;
    auto value = bits_();
    while (value >= limit) value = bits_();
    return value % bound;
  }

 private:
  std::mt19937_64 bits_;
};

template <typename Item>
class ShuffleStream final : public Stream<Item> {
 public:
  ShuffleStream(StreamPtr<Item> input, std::size_t buffer_size, std::uint64_t seed)
      : input_(std::move(input)), buffer_size_(buffer_size), dice_(seed) {}

  bool next(Item& out) override {
    fill();
    if (buffer_.empty()) return false;
    std::swap(buffer_[dice_.below(buffer_.size())], buffer_.back());
    out = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }

 private:
  void fill() {
    while (input_ && buffer_.size() < buffer_size_) {
      Item item{};
      if (!input_->next(item)) input_ = nullptr;
      else buffer_.push_back(std::move(item));
    }
  }

  StreamPtr<Item> input_;
  const std::size_t buffer_size_;
  Dice dice_;
  std::vector<Item> buffer_;
};

class ShuffleNode final : public ReorderNode<ShuffleNode> {
 public:
  ShuffleNode(NodePtr input, const ShuffleOptions& options, std::uint64_t seed)
      : ReorderNode(std::move(input)), options_(options), seed_(seed) {}

  template <typename Item>
  StreamPtr<Item> open_items() const {
    const auto pass = options_.reshuffle_each_iteration ? passes_.fetch_add(1, std::memory_order_relaxed) : 0;
    return std::make_unique<ShuffleStream<Item>>(open_as<Item>(input()), static_cast<std::size_t>(options_.buffer_size),
                                                 mix(seed_.load(std::memory_order_relaxed), pass));
  }
  NodePtr with_input(NodePtr input) const override {
    return std::make_shared<ShuffleNode>(std::move(input), options_, seed_.load());
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  std::string describe() const override {
    return lockstep::str("Shuffle(", options_.buffer_size, options_.seed ? lockstep::str(", seed ", *options_.seed) : "",
                         options_.reshuffle_each_iteration ? ")" : ", same order in each pass)");
  }

  std::atomic<std::uint64_t>* drawn_seed() const override { return options_.seed ? nullptr : &seed_; }

 private:
  const ShuffleOptions options_;
  mutable std::atomic<std::uint64_t> seed_;
  // The one thing that a pass changes: the next one gets another order.
  mutable std::atomic<std::uint64_t> passes_{0};
};

// From LibTorch's default generator, so that torch::manual_seed() makes unseeded shuffles repeatable as well.
std::uint64_t draw_seed() {
  return static_cast<std::uint64_t>(at::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::kLong).item<std::int64_t>());
}

}  // namespace

NodePtr make_take(NodePtr input, std::int64_t count) {
  if (count < -1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("take(", count, "): the count must be 0 or more, or -1 for all elements"));
  return std::make_shared<TakeNode>(std::move(input), count);
}

NodePtr make_skip(NodePtr input, std::int64_t count) { return std::make_shared<SkipNode>(std::move(input), count); }

NodePtr make_repeat(NodePtr input, std::int64_t count) { return std::make_shared<RepeatNode>(std::move(input), count); }

NodePtr make_shuffle(NodePtr input, const ShuffleOptions& options) {
  if (options.buffer_size < 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("shuffle(", options.buffer_size, "): the buffer size must be at least 1"));
  return std::make_shared<ShuffleNode>(std::move(input), options, options.seed ? *options.seed : draw_seed());
}

}  // namespace lockstep::data::internal
