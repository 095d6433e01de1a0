#include <deque>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/data/ops/elements.h"
#include "lockstep/data/ops/ops.h"
#include "lockstep/data/prefetch.h"

namespace lockstep::data::internal {
namespace {

std::size_t bytes_in(const Element& element) {
  std::size_t bytes = 0;
  for (const auto& component : element.components()) {
    if (!component.is_bytes()) bytes += component.tensor().nbytes();
    else
      for (const auto& text : component.bytes().values) bytes += text.size();
  }
  return bytes;
}

// The thread begins with the first element, so that a position can be restored before.
class PrefetchStream final : public Stream<Element> {
 public:
  PrefetchStream(std::unique_ptr<Stream<Element>> input, std::int64_t count) : input_(std::move(input)), count_(count) {}

  bool next(Element& out) override {
    if (!restored_.empty()) {
      out = std::move(restored_.front());
      restored_.pop_front();
      return true;
    }
    if (!ahead_)
      ahead_.emplace(
          "lockstep:pre", count_,
          [this](Element& element) {
            const trace::Span span("make element", trace::Category::kInput);
            return input_->next(element);
          },
          bytes_in);
    const trace::Span span("take element", trace::Category::kInput, {"ready", static_cast<std::int64_t>(ahead_->size())});
    return ahead_->take(out);
  }

  std::optional<std::size_t> ready() const override { return restored_.size() + (ahead_ ? ahead_->size() : 0); }

  void save(PositionWriter& to) override {
    to.begin("prefetch");
    std::deque<Element> ready = restored_;
    if (!ahead_) {
      put_elements(to, ready);
      return input_->save(to);
    }
    ahead_->save([&](const Element& element) { ready.push_back(element); },
                 [&] {
                   put_elements(to, ready);
                   input_->save(to);
                 });
  }
  void restore(PositionReader& from) override {
    from.expect("prefetch");
    const auto ready = take_elements(from);
    restored_.assign(ready.begin(), ready.end());
    input_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> input_;  // used by the thread, once there is one
  const std::int64_t count_;
  std::deque<Element> restored_;  // before all that is made ahead
  std::optional<Prefetcher<Element>> ahead_;
};

class PrefetchNode final : public UnaryNode {
 public:
  PrefetchNode(NodePtr input, std::int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (count_ == 0) return input().open();
    return std::make_unique<PrefetchStream>(input().open(), count_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PrefetchNode>(std::move(inputs.at(0)), count_);
  }
  bool is_only_ahead() const override { return true; }
  bool has_own_thread() const override { return count_ != 0; }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override {
    return count_ == kAutotune ? "Prefetch(autotune)" : lockstep::str("Prefetch(", count_, ")");
  }

 private:
  const std::int64_t count_;
};

}  // namespace

NodePtr make_prefetch(NodePtr input, std::int64_t count) {
  if (count < kAutotune)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("prefetch(", count, "): the number of elements must not be negative; kAutotune finds one"));
  return std::make_shared<PrefetchNode>(std::move(input), count);
}

}  // namespace lockstep::data::internal
