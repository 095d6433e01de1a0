#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/variable/named_tensors.h"

namespace lockstep {

// What an optimizer has learned, by name, for checkpoints: tensors such as "exp_avg/fc1.weight", numbers such as
// "step/fc1.weight" and "learning_rate/0" (of a group). In the order of the parameters: the same on all replicas and workers.
struct OptimizerState {
  NamedTensors tensors = {};
  std::vector<std::pair<std::string, double>> numbers = {};
};

// Whether tensors of a state are copies, or the optimizer's own.
enum class StateMemory { kCopied, kShared };

// The state of an optimizer over these parameters. Those of LibTorch (SGD, Adam, AdamW, RMSprop, Adagrad) and of
// Lockstep are shown by name; any other is LibTorch's own archive, one tensor of bytes named "archive". Parameters that were
// not updated yet have no state. Throws kInvalidArgument when the optimizer has a parameter that is not among them.
OptimizerState get_optimizer_state(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                   StateMemory memory = StateMemory::kCopied);

// And back, on each parameter's device; what the optimizer had is forgotten. Throws kInvalidArgument, before anything is
// changed, when the state is not of this kind of optimizer and these parameters: what is unexpected, or of another shape, is
// named.
void set_optimizer_state(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, const OptimizerState& state,
                         StateMemory memory = StateMemory::kCopied);
// Throws as set_optimizer_state() would, and changes nothing. (What an archive has inside is not looked at.)
void check_optimizer_state(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, const OptimizerState& state);

// The name of its class: "Adam", "LionOptimizer". States are of one kind.
std::string optimizer_kind(const torch::optim::Optimizer& optimizer);

// Moving averages stand beside an optimizer's own state under these names.
inline constexpr const char* kAveragePrefix = "average/";
inline constexpr const char* kStepsName = "steps";
// The averages in the parameters' order, on their devices; nothing when there are none. Throws kInvalidArgument as above.
std::vector<at::Tensor> take_averages(const NamedTensors& averages, const NamedTensors& parameters);

}  // namespace lockstep
