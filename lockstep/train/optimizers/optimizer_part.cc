#include "lockstep/train/optimizers/optimizer_part.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Every bit of a number.
std::string text_of(double value) {
  char text[64];  // NOLINT: std::to_chars wants one
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

class OptimizerPart : public Trackable {
 public:
  explicit OptimizerPart(Optimizer optimizer) : optimizer_(std::move(optimizer)) {}

  CheckpointPart save() override {
    const auto state = optimizer_.state();
    CheckpointPart part{state.tensors, {}};
    for (const auto& [name, value] : state.numbers) part.values[name] = text_of(value);
    return part;
  }

  void restore(const CheckpointPart& part) override {
    OptimizerState state;
    for (const auto& [name, tensor] : part.tensors) state.tensors.emplace_back(name, tensor.clone());
    for (const auto& [name, text] : part.values) {
      const auto value = whole_number<double>(text);
      if (!value) throw Error(ErrorCode::kDataLoss, str("the optimizer's '", name, "' is '", text, "', which is no number"));
      state.numbers.emplace_back(name, *value);
    }
    optimizer_.load_state(state);
  }

 private:
  Optimizer optimizer_;
};

}  // namespace

std::shared_ptr<Trackable> optimizer_part(Optimizer optimizer) { return std::make_shared<OptimizerPart>(std::move(optimizer)); }

}  // namespace lockstep
