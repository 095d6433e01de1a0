#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/train/gradient_reducer.h"
#include "lockstep/train/optimizers/fused_step.h"
#include "lockstep/train/optimizers/optimizer_spec.h"
#include "lockstep/train/optimizers/optimizer_state.h"
#include "lockstep/variable/mirrored.h"

namespace lockstep {

struct OptimizerOptions {
  GradientOptions gradients = {};
  // After the sum over the replicas, gradients are scaled down so that their norm over all parameters is at most this.
  std::optional<double> clip_global_norm = std::nullopt;
  // The same for each gradient by itself.
  std::optional<double> clip_norm = std::nullopt;
  // After the sum, no element of a gradient is larger than this, or smaller than its negative.
  std::optional<double> clip_value = std::nullopt;
};

// One LibTorch optimizer for each replica's copy of a model, stepped together on the same gradients. A handle.
//
//   loss.backward();
//   optimizer.step();   // inside run()
class Optimizer {
 public:
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters)>;
  Optimizer(std::shared_ptr<ModuleReplicas> model, const Make& make, const OptimizerOptions& options);
  // With everything that the spec says: schedule, weight decay, clipping, moving averages, accumulation. Accumulated gradients
  // are summed over the replicas once an update.
  Optimizer(std::shared_ptr<ModuleReplicas> model, const OptimizerSpec& spec, const GradientOptions& gradients = {});

  // Inside run(), in every replica: brings the gradients together (those of backward(), and those that were put into
  // parameter.mutable_grad() since the last step), clips them, steps, and forgets them. Without a
  // strategy: a plain step. Throws kFailedPrecondition when the model is mirrored and this is not one of its replicas.
  void step();

  // Only brings the gradients together, so that they can be looked at or changed before step(). Once a step.
  void synchronize();

  // Drops the gradients accumulated so far: this replica's, outside run() all replicas'. step() does it too: calling it
  // is allowed and not needed.
  void zero_grad();

  // While it lives, this replica's backward() calls only accumulate (made outside run(): all replicas'): for all but the
  // last batch of a step.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(std::shared_ptr<GradientReducer> reducer);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<GradientReducer> reducer_;
  };
  NoSync no_sync() { return NoSync(reducer_); }

  // The current replica's LibTorch optimizer (outside run(), replica 0's), and all of them.
  torch::optim::Optimizer& local() const;
  const std::vector<std::shared_ptr<torch::optim::Optimizer>>& all() const noexcept { return optimizers_; }

  // For every replica and parameter group. Outside run(), or in every replica. Throws kInvalidArgument where a schedule
  // gives the rate, and for a rate that is negative or no number.
  void set_learning_rate(double learning_rate);
  // Of the next update.
  double learning_rate() const;

  // How many updates there were (with accumulation, not how many step()s).
  std::int64_t iterations() const;

  // The norm of all gradients together, before clipping, of the last step() that clipped by it.
  double global_norm() const;

  // The weights become their moving averages; without use_ema, or before the first step, nothing changes. Keras's fit() ends
  // so. Outside run(), or in every replica.
  void use_averages();

  // Everything but the weights that the next step depends on, by name: LibTorch's state of replica 0, moving averages
  // ("average/fc1.weight"), the counts. Gradients that are being accumulated are not in it. And back, into all replicas; throws
  // kInvalidArgument, naming what is wrong, when it is not of this model and kind of optimizer. Outside run().
  OptimizerState state() const;
  void load_state(const OptimizerState& state);
  // Throws as load_state() would, and changes nothing.
  void check_state(const OptimizerState& state) const;

  // Names of parameters that no loss has reached since the first step.
  std::vector<std::string> unused_parameters() const { return reducer_->unused_parameters(); }

 private:
  struct Progress;

  void build(const Make& make);
  bool is_due(std::size_t replica) const;
  void update(std::size_t replica);
  void step_local(std::size_t replica);
  // Note [recorded steps], 4.
  void take_part_in(Recording& recording, std::size_t replica) const;
  // Throws kUnimplemented for what a recorded step cannot do.
  void require_recordable(Recording& recording) const;
  void scale_accumulated(std::size_t replica);
  void clip(std::size_t replica);
  void decay(std::size_t replica);
  void average(std::size_t replica);
  // Gives every gradient of the replica to `change`, which may write into it.
  void change_gradients(std::size_t replica, const std::function<void(at::Tensor& gradient)>& change);

  // Const after construction.
  std::shared_ptr<ModuleReplicas> model_;
  OptimizerOptions options_;
  std::optional<OptimizerSpec> spec_;  // absent: made by a function
  std::shared_ptr<GradientReducer> reducer_;
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers_;
  std::vector<std::shared_ptr<FusedStep>> fused_;  // by replica; null: there is none

  // [r] used only by replica r.
  std::shared_ptr<std::vector<Progress>> progress_;
};

// An X (torch::optim::SGD, Adam, AdamW, Adagrad, RMSprop, ...) over all parameters of a mirrored model.
// `x_options` is what X takes: a learning rate, or torch::optim::XOptions.
template <typename X, typename M, typename XOptions>
Optimizer optimizer(const MirroredModule<M>& model, const XOptions& x_options, const OptimizerOptions& options = {}) {
  return Optimizer(
      model.replicas(),
      [&](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
        return std::make_unique<X>(std::move(parameters), x_options);
      },
      options);
}

// As the spec says: lockstep::optimizer(model, ls::Adam(1e-3)).
template <typename M>
Optimizer optimizer(const MirroredModule<M>& model, const OptimizerSpec& spec, const GradientOptions& gradients = {}) {
  return Optimizer(model.replicas(), spec, gradients);
}

}  // namespace lockstep
