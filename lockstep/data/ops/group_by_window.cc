#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/elements.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

using WindowSize = std::function<std::int64_t(std::int64_t)>;
using GroupUse = std::function<NodePtr(std::int64_t key, NodePtr window)>;

class GroupStream final : public Stream<Element> {
 public:
  GroupStream(std::unique_ptr<Stream<Element>> input, const KeyFunction& key, const WindowSize& size_of, const GroupUse& use)
      : input_(std::move(input)), key_(key), size_of_(size_of), use_(use) {}

  bool next(Element& out) override {
    for (;;) {
      if (inner_ && inner_->next(out)) return true;
      inner_ = nullptr;
      if (!fill() && !begin_rest()) return false;
    }
  }

  void save(PositionWriter& to) override {
    to.begin("group_by_window");
    to.put(static_cast<std::int64_t>(groups_.size()));
    for (const auto& [key, elements] : groups_) {
      to.put(key);
      put_elements(to, elements);
    }
    to.put(input_ != nullptr);
    if (input_) input_->save(to);
    to.put(inner_ != nullptr);
    if (!inner_) return;
    to.put(window_key_);
    put_elements(to, window_);
    inner_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("group_by_window");
    for (auto left = from.count(); left > 0; --left) {
      const auto key = from.number();
      groups_[key] = take_elements(from);
    }
    if (from.flag()) input_->restore(from);
    else input_ = nullptr;
    if (!from.flag()) return;
    const auto key = from.number();
    open(key, take_elements(from));
    inner_->restore(from);
  }

 private:
  void open(std::int64_t key, std::vector<Element> window) {
    window_key_ = key;
    window_ = std::move(window);
    inner_ = use_(key, make_elements(window_))->open();
  }

  // Reads until a window is full; false when the input has ended.
  bool fill() {
    Element element;
    while (input_ && input_->next(element)) {
      const auto key = key_(element);
      const auto size = size_of_(key);
      if (size < 1)
        throw Error(ErrorCode::kInvalidArgument,
                    lockstep::str("group_by_window: the window of key ", key, " has size ", size, "; it must be at least 1"));
      auto& group = groups_[key];
      group.push_back(std::move(element));
      if (static_cast<std::int64_t>(group.size()) < size) continue;
      open(key, std::move(group));
      groups_.erase(key);
      return true;
    }
    input_ = nullptr;
    return false;
  }

  // By key; false when there is none.
  bool begin_rest() {
    if (groups_.empty()) return false;
    auto first = groups_.extract(groups_.begin());
    open(first.key(), std::move(first.mapped()));
    return true;
  }

  std::unique_ptr<Stream<Element>> input_;  // null: at its end
  const KeyFunction key_;
  const WindowSize size_of_;
  const GroupUse use_;
  std::map<std::int64_t, std::vector<Element>> groups_;  // not full
  std::int64_t window_key_ = 0;
  std::vector<Element> window_;
  std::unique_ptr<Stream<Element>> inner_;  // of use_(window_key_, window_)
};

class GroupNode final : public UnaryNode {
 public:
  GroupNode(NodePtr input, KeyFunction key, WindowSize size_of, GroupUse use)
      : UnaryNode(std::move(input)), key_(std::move(key)), size_of_(std::move(size_of)), use_(std::move(use)) {}

  std::unique_ptr<Stream<Element>> open() const override {
    return std::make_unique<GroupStream>(input().open(), key_, size_of_, use_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<GroupNode>(std::move(inputs.at(0)), key_, size_of_, use_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::string describe() const override { return "GroupByWindow(fn)"; }

 private:
  const KeyFunction key_;
  const WindowSize size_of_;
  const GroupUse use_;
};

}  // namespace

NodePtr make_group_by_window(NodePtr input, KeyFunction key, WindowSize size_of, GroupUse use) {
  return std::make_shared<GroupNode>(std::move(input), std::move(key), std::move(size_of), std::move(use));
}

}  // namespace lockstep::data::internal
