#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/distributed_dataset.h"
#include "lockstep/train/logs.h"
#include "lockstep/train/model/compile_options.h"
#include "lockstep/train/model/forward.h"
#include "lockstep/train/model/loss_scale.h"
#include "lockstep/train/optimizer.h"

namespace lockstep::internal {

// What a replica gets of a batch.
struct ReplicaBatch {
  Tensors inputs = {};
  Tensors targets = {};
  Tensors weights = {};
  std::int64_t rows = 0;
  std::int64_t global_rows = 0;
};

struct TrackedMetric {
  Metric metric;
  std::string name;
  std::size_t output = 0;
  bool is_weighted = false;
};

// A compiled model as the replicas run it: a training step, a test step, a prediction; and what they add up meanwhile.
class StepRunner {
 public:
  using Batch = DistributedIterator::Batch;

  // Uses a step's gradients in place of an optimizer here: those of a hosted module go to its servers.
  using Push = std::function<void()>;

  // The options fit together: see require_complete.
  StepRunner(std::shared_ptr<ModuleReplicas> model, Forward forward, CompileOptions options, Push push = nullptr);

  // Training or evaluation mode, of all copies.
  void set_mode(bool is_training);
  // Each runs all replicas of this process. `global_rows`: of the whole batch, over all workers.
  void train(const Batch& batch, std::int64_t global_rows);
  void test(const Batch& batch, std::int64_t global_rows);
  // One batch by itself, without a strategy: what a worker does for a coordinator.
  void train_alone(const data::Element& batch);
  void test_alone(const data::Element& batch);
  // Inside run(): the module's outputs, in the precision that was compiled.
  Tensors call_forward(const Tensors& inputs);
  // Gradients of steps that have made no update yet are one. Called on all workers, at the end of an epoch.
  void flush();

  // What steps have left that no update has used.
  void forget_gradients();

  // The rows of a batch that this worker's replicas have.
  static std::int64_t rows_of(const Batch& batch);

  // Throws kInvalidArgument for a model with several outputs, and for weights that are not finite.
  void set_class_weight(const std::map<std::int64_t, double>& weights);
  // Losses and metrics begin again.
  void reset();
  // Their values so far: over this worker's replicas, or, called on all workers, over the job's.
  Logs local_logs() const;
  Logs logs() const;
  double last_loss() const;

  // Throws kFailedPrecondition when it is on parameter servers.
  Optimizer& optimizer();
  bool has_optimizer() const noexcept { return optimizer_.has_value(); }
  std::vector<TrackedMetric>& metrics() noexcept { return metrics_; }
  std::int64_t iterations() const { return optimizer_ ? optimizer_->iterations() : updates_elsewhere_; }
  void note_update_elsewhere(double loss);
  void set_updates_elsewhere(std::int64_t count) noexcept { updates_elsewhere_ = count; }
  // No step has left gradients that wait for an update.
  bool is_between_updates() const noexcept { return pending_ == 0; }
  LossScale& loss_scale() noexcept { return loss_scale_; }
  // Losses and the rows they are of, [1 + outputs] and one: for checkpoints; of this worker's replicas together.
  std::vector<double> loss_sums() const;
  std::vector<double> loss_sums_of_all() const;  // called on all workers
  void set_loss_sums(const std::vector<double>& sums);

  // One replica's running losses; the total, then each output's.
  struct alignas(64) Sums {
    std::vector<double> losses = {};
    double rows = 0;
    at::Tensor last = {};
    std::vector<at::Tensor> on_device = {};  // of a GPU: added up there, so that nobody waits for it
  };
  // What reset() forgets, for an evaluation in the middle of an epoch. Called on all workers.
  struct Kept {
    std::vector<Sums> sums;
    std::vector<std::vector<at::Tensor>> metrics;
  };
  Kept keep() const;
  void bring_back(Kept kept);

 private:
  friend class lockstep::TrainStep;

  void take_metrics(CompileOptions& options);
  ReplicaBatch batch_of(const data::Element& element, std::int64_t global_rows) const;
  // How many components of an element are inputs, and how many targets.
  std::pair<std::size_t, std::size_t> inputs_and_targets(const data::Element& element) const;
  void train_replica(const data::Element& element, std::int64_t global_rows);
  void test_replica(const data::Element& element, std::int64_t global_rows);

  Tensors call_with_batch_norms(const Tensors& inputs);

  // For TrainStep, inside run().
  at::Tensor loss(const ReplicaBatch& batch, const Tensors& outputs);
  at::Tensor share_by_rows(std::size_t k, const ReplicaBatch& batch, const Tensors& outputs) const;
  at::Tensor share_by_data(std::size_t k, const ReplicaBatch* batch, const Tensors& outputs) const;
  // Of a replica without rows, where the others wait for it.
  void join_losses() const;
  void minimize(const at::Tensor& loss);
  void update();
  void update_metrics(const ReplicaBatch& batch, const Tensors& outputs);
  void count(const ReplicaBatch& batch, std::size_t which, const at::Tensor& share);

  std::size_t here() const { return model_->index_here(); }
  Strategy& strategy() const;
  Logs logs_of(const std::vector<double>& sums, bool is_local) const;
  std::string loss_name(std::size_t output) const;
  // By local replica: its losses, and its rows.
  std::vector<std::vector<double>> replica_sums() const;

  // Const after construction.
  const std::shared_ptr<ModuleReplicas> model_;
  const Forward forward_;
  const std::vector<Loss> losses_;
  std::vector<double> loss_weights_;
  const std::int64_t steps_per_update_;
  const Precision precision_;
  const std::function<void(TrainStep&)> train_step_;
  const Push push_;
  std::vector<TrackedMetric> metrics_;

  // Used outside run() only.
  std::map<std::int64_t, double> class_weight_;
  std::int64_t pending_ = 0;  // steps whose gradients wait for an update
  bool is_meeting_ = false;   // the module's batch norms do
  bool is_updating_ = true;   // the step that is under way makes one
  std::int64_t updates_elsewhere_ = 0;
  double last_loss_elsewhere_ = 0;

  // [r] used only by replica r while it runs.
  std::vector<Sums> sums_;
  LossScale loss_scale_;

  std::optional<Optimizer> optimizer_;  // absent: there is a push_
};

// Throws kInvalidArgument for options that do not fit together, kUnimplemented for what the replicas' devices cannot do.
void require_complete(const CompileOptions& options, const ModuleReplicas& model);

}  // namespace lockstep::internal
