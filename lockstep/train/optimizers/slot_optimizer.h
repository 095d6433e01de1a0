#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// What the optimizers that LibTorch lacks have in common. Not for users: they get a torch::optim::Optimizer.

namespace lockstep {

// A parameter's own: how often it was updated, a number that goes with it, and tensors of its shape.
struct SlotState : torch::optim::OptimizerCloneableParamState<SlotState> {
  std::int64_t step = 0;
  double factor = 1.0;
  std::vector<at::Tensor> slots = {};

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// A group's: its learning rate.
struct SlotOptions : torch::optim::OptimizerCloneableOptions<SlotOptions> {
  SlotOptions(double rate = 0.001) : lr(rate) {}  // NOLINT: LibTorch makes them of 0
  double lr;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr; }
  void set_lr(const double rate) override { lr = rate; }
};

// An optimizer that updates each parameter by itself, with tensors of its shape that it keeps.
class SlotOptimizer : public torch::optim::Optimizer {
 public:
  SlotOptimizer(std::vector<at::Tensor> parameters, double learning_rate)
      : Optimizer(std::move(parameters), std::make_unique<SlotOptions>(learning_rate)) {}

  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  struct Slot {
    std::string name;
    double initial = 0.0;
  };
  // In the order of SlotState::slots.
  virtual const std::vector<Slot>& slots() const = 0;

 protected:
  struct Update {
    at::Tensor& parameter;
    const at::Tensor& gradient;  // dense
    SlotState& state;            // its step counts this update
    double learning_rate;
  };
  virtual void update(const Update& now) const = 0;
};

}  // namespace lockstep
