#pragma once

// Names of LibTorch that our public headers mention without including LibTorch. A function may be declared to take
// or return these incomplete types; whoever calls it includes <torch/torch.h> or <ATen/ATen.h> first.

namespace at {
class Tensor;
}

namespace torch {
using at::Tensor;
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace lockstep {
class Recording;
class RemoteVariable;
class ReplicaContext;
class ReplicaSet;
class Strategy;
class StrategyExtended;
class Variable;
class VariableHost;
class WorkerGroup;
}  // namespace lockstep
