#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/variable/named_tensors.h"

namespace lockstep {

// One copy of a module for each replica, with equal weights, behind the handles that mirrored() returns.
//
// Parameters are mirrored: the optimizer keeps them equal. Buffers (batch norm's running statistics) are synchronised
// on read: every replica updates its own, and the first look from outside run() after a run() replaces all copies by
// their mean (integers: by replica 0's); with several workers they exchange that mean after every run(), so that one worker
// may look alone. A tensor that a program writes outside run() in the copy that it sees there,
// replica 0's, reaches all others at the next run(): so `auto copy = model.local(); torch::load(copy, file);` loads all. With
// several workers all must write the same parameters, and worker 0's values are everybody's; one that writes alone, and the
// others with it, get kFailedPrecondition at the next run(). (Not seen: what is written through tensor.data() or data_ptr(),
// which LibTorch does not count as a write.)
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
  ReplicaSet* replicas() const noexcept { return replicas_.get(); }  // null: made outside every strategy
  const std::string& name() const noexcept { return name_; }

  // The current replica's copy; outside run(), replica 0's, with its buffers synchronised.
  // Throws kFailedPrecondition under another strategy, and inside a replica when it was made outside scope().
  const std::shared_ptr<torch::nn::Module>& here() const;
  // Throws kInvalidArgument when there is no such copy.
  const std::shared_ptr<torch::nn::Module>& at(std::size_t replica) const;

  // Sets all copies' training mode; inside run() the current replica's only.
  void train(bool on) const;

  // True inside a replica of the strategy that the copies belong to.
  bool is_in_replica() const;

  // Position of here() among the copies.
  std::size_t index_here() const;

  // Every parameter once, by name, of one replica's copy.
  NamedTensors named_parameters(std::size_t replica) const;

  // Replaces all copies' buffers by their mean, if a run() may have changed them. Not inside run().
  void synchronize_buffers() const;

  // The one that keeps the copies' gradients in step: a new one retires the one before, whose `retire` is called. The
  // token keeps the place. Not inside run().
  std::shared_ptr<void> take_gradients(std::function<void()> retire) const;

  // Told by whoever keeps the replicas' gradients in step; see GradientWatch.
  void note_synchronized(std::size_t replica) const;

 private:
  class GradientWatch;
  struct Mirror;

  // Note [recorded steps], 4.
  void take_part_in(Recording& recording) const;
  void copy_from_first(std::size_t replica) const;
  void list_mirrors();
  void note_state() const;
  // The tensors become worker 0's, where there are several.
  void take_from_first_worker(const char* what, std::vector<at::Tensor> tensors) const;
  void exchange_buffers() const;
  void hand_out_changes() const;

  // Const after construction.
  std::shared_ptr<ReplicaSet> replicas_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::string name_;
  std::unique_ptr<GradientWatch> watch_;

  // Used only outside run().
  mutable std::uint64_t synchronized_at_run_ = 0;
  std::vector<std::unique_ptr<Mirror>> mirrors_;  // every parameter and buffer, as the last run() left it
  mutable std::vector<at::Tensor> buffer_means_;  // with several workers: of mirrors_, after the last run()
  mutable std::weak_ptr<std::function<void()>> retire_;

  std::shared_ptr<void> observer_;  // last: its calls use the rest
};

}  // namespace lockstep
