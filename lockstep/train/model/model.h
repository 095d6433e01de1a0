#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/trackable.h"
#include "lockstep/data/element.h"
#include "lockstep/fwd.h"
#include "lockstep/train/logs.h"
#include "lockstep/train/model/compile_options.h"
#include "lockstep/train/model/fit_options.h"
#include "lockstep/train/model/forward.h"
#include "lockstep/train/model/train_step.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/variable/mirrored.h"

namespace lockstep {

template <typename M>
class HostedModel;
namespace internal {
struct HostedLink;
}

// A mirrored module with a loss, an optimizer and metrics: trains, evaluates and predicts under the strategy in whose scope the
// module was made.
//
//   Model model(mirrored<Net>());
//   model.compile({.optimizer = Adam(1e-3), .loss = "mse", .metrics = {"mae"}});
//   model.fit(dataset, {.epochs = 3, .validation_data = test});
//
// Losses, gradients and metrics weigh examples: R replicas on W workers, with uneven or empty parts of a batch, give what one
// process gives on the whole batch. One thread at a time, outside run(); with several workers all make the same calls. Not
// copyable.
//
// Over a hosted module (train/model/hosted_model.h, which must be included) steps run on the workers of a
// ParameterServerStrategy, asynchronously: see Note [fit on workers]. Then
// - data is a DatasetCreator with steps_per_epoch, or tensors, which every worker gets;
// - losses and metrics are built-in ones, or functions without captures; a train_step of one's own, steps_per_update, moving
//   averages are kUnimplemented;
// - a worker computes on its first GPU, or on the CPU (Note [devices of hosted modules]);
// - callbacks are told of steps after their end, and those that need them at once are kInvalidArgument. ModelCheckpoint and
//   BackupAndRestore have checkpoints written by the servers, at the end of epochs or, with save_freq, after so many steps, for
//   which all workers then wait: Note [resuming a fit on workers];
// - compile() again keeps the optimizer, which must be the same: the servers have its state;
// - predict() runs on the coordinator, with the servers' weights; weights() and the like get and set those, with the tables of
//   hosted embeddings: whole in this process's memory, in save_weights() and load_weights() piece by piece. A model that has
//   such tables must be compiled first.
class Model {
 public:
  // The module's forward() takes one tensor or several, and gives a tensor, or a pair, tuple, array, vector or map of them.
  template <typename M>
  explicit Model(const MirroredModule<M>& module) : Model(module.replicas(), internal::forward_of(module)) {}
  // With forward(module, inputs...) in place of the module's own.
  template <typename M, typename F>
  Model(const MirroredModule<M>& module, F forward)
      : Model(module.replicas(), internal::forward_with(module, std::move(forward))) {}
  // Over a hosted module; `forward` must be without captures.
  template <typename M>
  explicit Model(const HostedModel<M>& module);
  template <typename M, typename F>
  Model(const HostedModel<M>& module, F forward);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // Says how to train. Again: with new losses and metrics, and an optimizer that begins anew; the weights stay.
  // Throws kInvalidArgument for options that do not fit together, kFailedPrecondition while fit() runs.
  void compile(CompileOptions options);

  // Trains for so many epochs and returns what the logs of each were. Throws kFailedPrecondition before compile(),
  // kInvalidArgument for data that does not fit the model or is empty, and what the module, the data or a callback throws.
  History fit(const ModelData& data, const FitOptions& options = {});
  // The rows of tensors as examples, in batches of options.batch_size. All workers give all rows.
  History fit(const at::Tensor& x, const at::Tensor& y, const FitOptions& options = {});

  // The loss and the metrics over all of the data.
  Logs evaluate(const ModelData& data, const EvaluateOptions& options = {});
  Logs evaluate(const at::Tensor& x, const at::Tensor& y, const EvaluateOptions& options = {});

  // The outputs for all rows, in their order, on the CPU. Targets and weights in the data are passed over where the module says
  // how many inputs it takes. On several workers all get all outputs; a dataset is divided by DATA whatever its policy; a
  // DistributedDataset is as it is.
  at::Tensor predict(const ModelData& data);
  at::Tensor predict(const at::Tensor& x, std::int64_t batch_size = 32);
  // Of a module with several outputs.
  Tensors predict_all(const ModelData& data);

  // One step on one global batch, which all workers give whole, and the logs of that batch. Throws kInvalidArgument for
  // components with different numbers of rows; train_on_batch kFailedPrecondition while fit() runs, whose epoch it would
  // disturb.
  Logs train_on_batch(const data::Element& batch);
  Logs test_on_batch(const data::Element& batch);

  // Parameters and buffers by LibTorch's names, copied; and those for all replicas. set_weights throws kInvalidArgument, and
  // changes nothing, when names are missing, unexpected or of another shape.
  CheckpointPart weights() const;
  void set_weights(const CheckpointPart& weights);

  // The same in a safetensors file: see save_weights and load_weights_into.
  void save_weights(const std::string& path) const;
  void load_weights(const std::string& path);

  // The loss of the last training step: this worker's share of it.
  double last_loss() const;
  // Updates of the weights so far.
  std::int64_t iterations() const;

  Optimizer& optimizer();
  Strategy& strategy() const;
  const std::shared_ptr<ModuleReplicas>& module() const;
  bool is_compiled() const noexcept;

  // The parts of the module with the number of their parameters, as a table.
  std::string summary() const;

  struct State;
  State& state() const { return *state_; }

 private:
  using MakeForward = std::function<internal::Forward(const std::shared_ptr<ModuleReplicas>&)>;
  Model(std::shared_ptr<ModuleReplicas> module, internal::Forward forward);
  Model(std::unique_ptr<internal::HostedLink> link, const std::shared_ptr<torch::nn::Module>& module,
        const MakeForward& forward);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
