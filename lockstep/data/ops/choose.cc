#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

class ChooseStream final : public Stream<Element> {
 public:
  ChooseStream(std::vector<std::unique_ptr<Stream<Element>>> inputs, std::unique_ptr<Stream<Element>> choice,
               bool stops_on_empty)
      : inputs_(std::move(inputs)), choice_(std::move(choice)), stops_on_empty_(stops_on_empty), left_(inputs_.size()) {}

  bool next(Element& out) override {
    Element chosen;
    while (left_ > 0 && choice_->next(chosen)) {
      const auto number = chosen[0].item().toLong();
      if (number < 0 || number >= static_cast<std::int64_t>(inputs_.size()))
        throw Error(ErrorCode::kInvalidArgument, lockstep::str("choose_from_datasets: dataset ", number, " was chosen of ",
                                                               inputs_.size(), "; they count from 0"));
      auto& input = inputs_[static_cast<std::size_t>(number)];
      if (!input) continue;
      if (input->next(out)) return true;
      input = nullptr;
      left_ = stops_on_empty_ ? 0 : left_ - 1;
    }
    left_ = 0;
    return false;
  }

  void save(PositionWriter& to) override {
    to.begin("choose");
    to.put(static_cast<std::int64_t>(left_));
    if (left_ == 0) return;
    choice_->save(to);
    for (const auto& input : inputs_) {
      to.put(input != nullptr);
      if (input) input->save(to);
    }
  }
  void restore(PositionReader& from) override {
    from.expect("choose");
    left_ = static_cast<std::size_t>(from.number());
    if (left_ == 0) return;
    choice_->restore(from);
    for (auto& input : inputs_) {
      if (from.flag()) input->restore(from);
      else input = nullptr;
    }
  }

 private:
  std::vector<std::unique_ptr<Stream<Element>>> inputs_;  // null: at its end
  const std::unique_ptr<Stream<Element>> choice_;
  const bool stops_on_empty_;
  std::size_t left_;  // inputs that have not ended; 0: over
};

class ChooseNode final : public Node {
 public:
  // The last input is the choice.
  ChooseNode(std::vector<NodePtr> inputs, bool stops_on_empty) : inputs_(std::move(inputs)), stops_on_empty_(stops_on_empty) {}

  std::unique_ptr<Stream<Element>> open() const override {
    std::vector<std::unique_ptr<Stream<Element>>> streams;
    for (const auto& input : inputs_) streams.push_back(input->open());
    auto choice = std::move(streams.back());
    streams.pop_back();
    return std::make_unique<ChooseStream>(std::move(streams), std::move(choice), stops_on_empty_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ChooseNode>(std::move(inputs), stops_on_empty_);
  }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {}; }
  std::vector<NodePtr> inputs() const override { return inputs_; }
  std::string describe() const override { return "Choose()"; }

 private:
  const std::vector<NodePtr> inputs_;
  const bool stops_on_empty_;
};

}  // namespace

NodePtr make_choose(std::vector<NodePtr> inputs, NodePtr choice, bool stops_on_empty) {
  if (inputs.empty()) throw Error(ErrorCode::kInvalidArgument, "choose_from_datasets: no dataset was given; give at least one");
  inputs.push_back(std::move(choice));
  return std::make_shared<ChooseNode>(std::move(inputs), stops_on_empty);
}

}  // namespace lockstep::data::internal
