#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/pool.h"

namespace lockstep::data::internal {
namespace {

// One of the datasets that are read in turn. With a pool its next elements are read while others are handed out.
class Lane {
 public:
  Lane(const DatasetFunction& fn, Element made_of) : made_of_(std::move(made_of)), stream_(fn(made_of_)->open()) {}
  ~Lane() {
    if (task_) task_->drop("interleave");
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Begins to read `count` elements more, if nothing is being read.
  void read_ahead(std::size_t count, const at::ThreadLocalState& settings) {
    if (task_ || is_over_ || failure_ || ready_.size() >= count) return;
    task_ = std::make_shared<Task>([this, count, settings] {
      const at::ThreadLocalStateGuard guard(settings);
      read(count);
    });
    Pool::instance().submit(task_);
  }

  bool next(Element& out) {
    settle();
    if (ready_.empty() && !failure_ && !is_over_) read(1);
    if (ready_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return false;
    }
    out = std::move(ready_.front());
    ready_.pop_front();
    return true;
  }

  void save(PositionWriter& to) {
    settle();
    if (failure_) std::rethrow_exception(failure_);  // where it is cannot be said any more
    to.put(made_of_);
    to.put(static_cast<std::int64_t>(ready_.size()));
    for (const auto& element : ready_) to.put(element);
    stream_->save(to);
  }
  void restore(PositionReader& from) {
    ready_.resize(from.count());
    for (auto& element : ready_) element = from.element();
    stream_->restore(from);
  }

 private:
  void settle() {
    if (!task_) return;
    task_->finish("interleave");
    task_ = nullptr;
  }

  void read(std::size_t count) noexcept {
    try {
      Element element;
      while (ready_.size() < count) {
        if (!stream_->next(element)) {
          is_over_ = true;
          return;
        }
        ready_.push_back(std::move(element));
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const Element made_of_;
  const std::unique_ptr<Stream<Element>> stream_;
  // Used by the task while there is one.
  std::deque<Element> ready_;
  std::exception_ptr failure_;
  bool is_over_ = false;
  std::shared_ptr<Task> task_;  // null: nothing is being read
};

class InterleaveStream final : public Stream<Element> {
 public:
  InterleaveStream(std::unique_ptr<Stream<Element>> input, const DatasetFunction& fn, const InterleaveOptions& options)
      : input_(std::move(input)), fn_(fn), options_(options), lanes_(static_cast<std::size_t>(options.cycle)) {}

  bool next(Element& out) override {
    while (input_ || std::ranges::any_of(lanes_, [](const auto& lane) { return lane != nullptr; })) {
      auto& lane = lanes_[turn_];
      if (!lane && !fill(lane)) {
        advance();
        continue;
      }
      if (lane->next(out)) {
        if (++given_ == options_.block) advance();
        return true;
      }
      lane = nullptr;
      advance();
    }
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("interleave");
    to.put(static_cast<std::int64_t>(turn_));
    to.put(given_);
    to.put(input_ != nullptr);
    if (input_) input_->save(to);
    for (const auto& lane : lanes_) {
      to.put(lane != nullptr);
      if (lane) lane->save(to);
    }
  }
  void restore(PositionReader& from) override {
    from.expect("interleave");
    turn_ = static_cast<std::size_t>(from.number()) % lanes_.size();
    given_ = from.number();
    if (from.flag()) input_->restore(from);
    else input_ = nullptr;
    for (auto& lane : lanes_) {
      if (!from.flag()) continue;
      lane = std::make_unique<Lane>(fn_, from.element());
      lane->restore(from);
    }
  }

 private:
  bool fill(std::unique_ptr<Lane>& lane) {
    Element element;
    if (!input_) return false;
    if (!input_->next(element)) {
      input_ = nullptr;
      return false;
    }
    lane = std::make_unique<Lane>(fn_, std::move(element));
    return true;
  }

  // The lanes whose turn comes next are read while this one is used.
  void advance() {
    turn_ = (turn_ + 1) % lanes_.size();
    given_ = 0;
    const auto ahead = std::min<std::size_t>(static_cast<std::size_t>(options_.parallel), lanes_.size());
    for (std::size_t k = 0; options_.parallel > 1 && k < ahead; ++k)
      if (auto& lane = lanes_[(turn_ + k) % lanes_.size()])
        lane->read_ahead(static_cast<std::size_t>(options_.block) * kBlocksAhead, settings_);
  }

  static constexpr std::size_t kBlocksAhead = 16;

  std::unique_ptr<Stream<Element>> input_;  // null: at its end
  const DatasetFunction fn_;
  const InterleaveOptions options_;
  const at::ThreadLocalState settings_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t turn_ = 0;
  std::int64_t given_ = 0;  // by the lane whose turn it is
};

class InterleaveNode final : public UnaryNode {
 public:
  InterleaveNode(NodePtr input, DatasetFunction fn, const InterleaveOptions& options)
      : UnaryNode(std::move(input)), fn_(std::move(fn)), options_(options) {}

  std::unique_ptr<Stream<Element>> open() const override {
    auto options = options_;
    if (options.parallel == kAutotune) options.parallel = Pool::instance().good_parallelism();
    return std::make_unique<InterleaveStream>(input().open(), fn_, options);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<InterleaveNode>(std::move(inputs.at(0)), fn_, options_);
  }
  std::int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override {
    return lockstep::str("Interleave(fn, cycle ", options_.cycle, ", block ", options_.block, ")");
  }
  const DatasetFunction* dataset_function() const override { return &fn_; }

 private:
  const DatasetFunction fn_;
  const InterleaveOptions options_;
};

}  // namespace

NodePtr make_interleave(NodePtr input, DatasetFunction fn, const InterleaveOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (options.cycle < 1 || options.cycle > kMost || options.block < 1)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("interleave: the cycle is ", options.cycle, " and the block ", options.block,
                              "; both must be at least 1, and the cycle at most ", kMost));
  if (options.parallel < 1 && options.parallel != kAutotune)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("interleave: ", options.parallel, " datasets at once; give 1 or more, or kAutotune"));
  return std::make_shared<InterleaveNode>(std::move(input), std::move(fn), options);
}

}  // namespace lockstep::data::internal
