#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"

namespace lockstep {

// One copy of a module for each replica, with equal weights, behind the handles that mirrored() returns.
//
// Parameters are mirrored: the optimizer keeps them equal. Buffers (batch norm's running statistics) are synchronised
// on read: every replica updates its own, and the first look from outside run() after a run() replaces all copies by
// their mean (integers: by replica 0's).
class ModuleReplicas {
 public:
  using Factory = std::function<std::shared_ptr<torch::nn::Module>()>;

  // Calls `make` once a replica. Replica 0's weights, moved to every replica's device, are everybody's; the process's
  // random generator ends where one call leaves it. Modules that share parameters with replica 0's are cloned instead.
  explicit ModuleReplicas(const Factory& make);
  ~ModuleReplicas();
  ModuleReplicas(const ModuleReplicas&) = delete;
  ModuleReplicas& operator=(const ModuleReplicas&) = delete;

  std::size_t size() const noexcept { return modules_.size(); }
  ReplicaSet* replicas() const noexcept { return replicas_; }  // null: made outside every strategy
  const std::string& name() const noexcept { return name_; }

  // The current replica's copy; outside run(), replica 0's, with its buffers synchronised.
  // Throws kFailedPrecondition under another strategy, and inside a replica when it was made outside scope().
  const std::shared_ptr<torch::nn::Module>& here() const;
  const std::shared_ptr<torch::nn::Module>& at(std::size_t replica) const { return modules_.at(replica); }

  // Sets all copies' training mode; inside run() the current replica's only.
  void train(bool on) const;

  // True inside a replica of the strategy that the copies belong to.
  bool is_in_replica() const;

  // Position of here() among the copies.
  std::size_t index_here() const;

  // Every parameter once, by name, of one replica's copy.
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  NamedTensors named_parameters(std::size_t replica) const;

  // Replaces all copies' buffers by their mean, if a run() may have changed them. Not inside run().
  void synchronize_buffers() const;

  // Told by whoever keeps the replicas' gradients in step; see GradientWatch.
  void note_synchronized(std::size_t replica) const;

 private:
  class GradientWatch;

  void copy_from_first(std::size_t replica) const;

  // Const after construction.
  ReplicaSet* replicas_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::string name_;
  std::unique_ptr<GradientWatch> watch_;

  // Used only outside run().
  mutable std::uint64_t synchronized_at_run_ = 0;
};

}  // namespace lockstep
