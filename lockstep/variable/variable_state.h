#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/collective/reduce_op.h"
#include "lockstep/variable/variable.h"
#include "lockstep/variable/variable_host.h"

namespace lockstep {

// What all handles of one variable share. Components are written by the replica they belong to, or by one thread
// while no replica runs.
struct Variable::State {
  // Const after construction (the tensors' contents are not).
  std::string name;
  std::shared_ptr<ReplicaSet> replicas = nullptr;  // null: made outside every strategy
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kOnWrite;
  VariableAggregation aggregation = VariableAggregation::kNone;
  std::vector<at::Tensor> components;                // of a remote variable one without memory, for its shape
  int logical_device = 0;                            // of each replica: where its component is
  std::shared_ptr<RemoteVariable> remote = nullptr;  // null: the components are the variable

  bool is_on_read() const { return synchronization == VariableSynchronization::kOnRead; }

  // The aggregate of all components, over all workers, which all must ask for it. Throws kInvalidArgument for kNone.
  at::Tensor aggregate() const;

  // A component as programs see it: annotated, where it is on another logical device than the first.
  at::Tensor seen(std::size_t component) const;

  WorkerGroup* workers() const;  // null: one process
  at::Tensor reduce(ReduceOp op) const;
  std::string read_text() const;
};

}  // namespace lockstep
