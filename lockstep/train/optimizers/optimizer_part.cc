#include "lockstep/train/optimizers/optimizer_part.h"

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr const char* kKind = "kind";

OptimizerState state_of(const CheckpointPart& part) {
  OptimizerState state{part.tensors, {}};
  for (const auto& [name, text] : part.values) {
    if (name == kKind) continue;
    const auto value = whole_number<double>(text);
    if (!value) throw Error(ErrorCode::kDataLoss, str("the optimizer's '", name, "' is '", text, "', which is no number"));
    state.numbers.emplace_back(name, *value);
  }
  return state;
}

class OptimizerPart : public Trackable {
 public:
  explicit OptimizerPart(Optimizer optimizer) : optimizer_(std::move(optimizer)) {}

  CheckpointPart save() override {
    const auto state = optimizer_.state();
    CheckpointPart part{state.tensors, {}};
    for (const auto& [name, value] : state.numbers) part.values[name] = exact_text(value);
    part.values[kKind] = kind();
    return part;
  }

  void restore(const CheckpointPart& part) override { optimizer_.load_state(state_of(part)); }  // which copies the tensors

  std::vector<std::string> problems(const CheckpointPart& part) const override {
    // One without a kind is of an earlier version: its names must do.
    const auto saved = part.values.find(kKind);
    if (saved != part.values.end() && saved->second != kind())
      return {str("kind: it is the state of '", saved->second, "', and this optimizer is '", kind(), "'")};
    try {
      optimizer_.check_state(state_of(part));
    } catch (const Error& error) {
      return {error.message()};
    }
    return {};
  }

 private:
  std::string kind() const { return optimizer_kind(*optimizer_.all()[0]); }

  Optimizer optimizer_;
};

}  // namespace

std::shared_ptr<Trackable> optimizer_part(Optimizer optimizer) { return std::make_shared<OptimizerPart>(std::move(optimizer)); }

}  // namespace lockstep
