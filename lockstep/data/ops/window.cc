#include <algorithm>
#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/elements.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

using DatasetUse = std::function<NodePtr(NodePtr)>;

// Window k begins at element k * shift and has every stride-th element from there.
class WindowStream final : public Stream<Element> {
 public:
  WindowStream(std::unique_ptr<Stream<Element>> input, const WindowOptions& options, const DatasetUse& use)
      : input_(std::move(input)), options_(options), use_(use) {}

  bool next(Element& out) override {
    for (;;) {
      if (inner_ && inner_->next(out)) return true;
      inner_ = nullptr;
      auto window = next_window();
      if (window.empty()) return false;
      open(std::move(window));
    }
  }

  void save(PositionWriter& to) override {
    to.begin("window");
    to.put(to_skip_);
    put_elements(to, buffer_);
    to.put(input_ != nullptr);
    if (input_) input_->save(to);
    to.put(inner_ != nullptr);
    if (!inner_) return;
    put_elements(to, window_);
    inner_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("window");
    to_skip_ = from.number();
    const auto kept = take_elements(from);
    buffer_.assign(kept.begin(), kept.end());
    if (from.flag()) input_->restore(from);
    else input_ = nullptr;
    if (!from.flag()) return;
    open(take_elements(from));
    inner_->restore(from);
  }

 private:
  void open(std::vector<Element> window) {
    window_ = std::move(window);
    inner_ = use_(make_elements(window_))->open();
  }

  // Reads until the buffer has `count` elements, or the input ends.
  void read(std::size_t count) {
    Element element;
    while (input_ && (to_skip_ > 0 || buffer_.size() < count)) {
      if (!input_->next(element)) input_ = nullptr;
      else if (to_skip_ > 0) --to_skip_;
      else buffer_.push_back(std::move(element));
    }
  }

  // Empty: there is none.
  std::vector<Element> next_window() {
    const auto reach = static_cast<std::size_t>((options_.size - 1) * options_.stride + 1);
    read(reach);
    if (buffer_.empty() || (options_.drop_remainder && buffer_.size() < reach)) return {};
    std::vector<Element> window;
    for (std::size_t i = 0; i < std::min(reach, buffer_.size()); i += static_cast<std::size_t>(options_.stride))
      window.push_back(buffer_[i]);
    const auto dropped = std::min(buffer_.size(), static_cast<std::size_t>(options_.shift));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(dropped));
    to_skip_ = options_.shift - static_cast<std::int64_t>(dropped);
    return window;
  }

  std::unique_ptr<Stream<Element>> input_;  // null: at its end
  const WindowOptions options_;
  const DatasetUse use_;
  std::deque<Element> buffer_;  // from the beginning of the next window
  std::int64_t to_skip_ = 0;    // elements before it that are not read yet
  std::vector<Element> window_;
  std::unique_ptr<Stream<Element>> inner_;  // of use_(window_)
};

class WindowNode final : public UnaryNode {
 public:
  WindowNode(NodePtr input, const WindowOptions& options, DatasetUse use)
      : UnaryNode(std::move(input)), options_(options), use_(std::move(use)) {}

  std::unique_ptr<Stream<Element>> open() const override {
    return std::make_unique<WindowStream>(input().open(), options_, use_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<WindowNode>(std::move(inputs.at(0)), options_, use_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override {
    return lockstep::str("Window(", options_.size, ", shift ", options_.shift, ", stride ", options_.stride,
                         options_.drop_remainder ? ", drop_remainder)" : ")");
  }

 private:
  const WindowOptions options_;
  const DatasetUse use_;
};

}  // namespace

NodePtr make_window(NodePtr input, const WindowOptions& options, DatasetUse use) {
  if (options.size < 1 || options.shift < 1 || options.stride < 1)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("window: the size is ", options.size, ", the shift ", options.shift,
                                                           " and the stride ", options.stride, "; all must be at least 1"));
  return std::make_shared<WindowNode>(std::move(input), options, std::move(use));
}

}  // namespace lockstep::data::internal
