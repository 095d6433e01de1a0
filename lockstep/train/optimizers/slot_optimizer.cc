#include "lockstep/train/optimizers/slot_optimizer.h"

#include <torch/torch.h>

#include "lockstep/train/optimizers/state_key.h"

namespace lockstep {
namespace {

std::string slot_key(std::size_t index) { return "slot_" + std::to_string(index); }

}  // namespace

void SlotState::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("step", c10::IValue(step));
  archive.write("factor", c10::IValue(factor));
  archive.write("slots", c10::IValue(static_cast<std::int64_t>(slots.size())));
  for (std::size_t i = 0; i < slots.size(); ++i) archive.write(slot_key(i), slots[i], /*is_buffer=*/true);
}

void SlotState::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  archive.read("step", value);
  step = value.toInt();
  archive.read("factor", value);
  factor = value.toDouble();
  archive.read("slots", value);
  slots.resize(static_cast<std::size_t>(value.toInt()));
  for (std::size_t i = 0; i < slots.size(); ++i) archive.read(slot_key(i), slots[i], /*is_buffer=*/true);
}

void SlotOptions::serialize(torch::serialize::OutputArchive& archive) const { archive.write("lr", c10::IValue(lr)); }

void SlotOptions::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  archive.read("lr", value);
  lr = value.toDouble();
}

at::Tensor SlotOptimizer::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (auto& group : param_groups_) {
    for (auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& mine = state_[state_key(state_, parameter)];
      if (mine == nullptr) {
        auto made = std::make_unique<SlotState>();
        for (const auto& slot : slots()) made->slots.push_back(at::full_like(parameter, slot.initial));
        mine = std::move(made);
      }
      auto& state = static_cast<SlotState&>(*mine);
      ++state.step;
      const auto gradient = parameter.grad().layout() == at::kSparse ? parameter.grad().to_dense() : parameter.grad();
      update({parameter, gradient, state, group.options().get_lr()});
    }
  }
  return loss;
}

void SlotOptimizer::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<SlotState, SlotOptions>(archive, *this);
}

void SlotOptimizer::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<SlotState, SlotOptions>(archive, *this);
}

}  // namespace lockstep
