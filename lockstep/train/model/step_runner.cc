#include "lockstep/train/model/step_runner.h"

#include <torch/torch.h>

#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/loss.h"
#include "lockstep/train/model/autocast.h"
#include "lockstep/train/model/example_weights.h"
#include "lockstep/train/model/train_step.h"
#include "lockstep/train/sync_batch_norm.h"

namespace lockstep::internal {
namespace {

void default_train_step(TrainStep& step) {
  const auto outputs = step.forward();
  step.minimize(step.loss(outputs));
  step.update_metrics(outputs);
}

// Every parameter's gradient, of the replica's own copy.
template <typename F>
void for_each_gradient(const ModuleReplicas& model, F&& use) {
  for (const auto& [name, parameter] : model.named_parameters(model.index_here()))
    if (parameter.grad().defined()) use(parameter);
}

// Batches are counted here, where the end of an epoch is known.
OptimizerSpec without_accumulation(const OptimizerSpec& spec) {
  auto rules = spec.rules();
  rules.gradient_accumulation_steps.reset();
  return spec.with_rules(rules);
}

// 0, as a function of the outputs.
at::Tensor nothing_of(const Tensors& outputs) {
  at::Tensor sum;
  for (const auto& output : outputs) sum = sum.defined() ? sum + output.sum() * 0 : output.sum() * 0;
  return sum;
}

void scale_gradients(const ModuleReplicas& model, double factor) {
  const c10::NoGradGuard no_grad;
  // New tensors: LibTorch may have left two gradients in one memory, which would be scaled twice.
  for_each_gradient(model, [&](at::Tensor parameter) { parameter.mutable_grad() = parameter.grad() * factor; });
}

bool are_gradients_finite(const ModuleReplicas& model) {
  const c10::NoGradGuard no_grad;
  at::Tensor sum;
  for_each_gradient(model, [&](const at::Tensor& parameter) {
    const auto gradient = parameter.grad();
    const auto one = (gradient.layout() == at::kSparse ? gradient.coalesce().values() : gradient).sum();
    sum = sum.defined() ? sum + one.to(sum.scalar_type()) : one.to(at::kFloat);
  });
  return !sum.defined() || std::isfinite(sum.item<double>());
}

// Throws kInvalidArgument for what has no rows.
std::int64_t rows_in(const data::Element& batch) {
  if (batch.empty() || batch[0].dim() == 0)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("the data is not batched: ", batch, "; use dataset.batch(size)"));
  return batch[0].size(0);
}

// LibTorch's errors do not say of which batch they are.
template <typename F>
void naming_batch(const char* doing, const data::Element& element, F&& fn) {
  try {
    fn();
  } catch (c10::Error& error) {
    error.add_context(lockstep::str(doing, ", with a replica's part of a batch: ", element));
    throw;
  }
}

// The sample weights of an output; undefined: none.
at::Tensor weight_of(const ReplicaBatch& batch, std::size_t output) {
  if (batch.weights.empty()) return {};
  return batch.weights[batch.weights.size() > 1 ? output : 0];
}

// [n] as [n, 1]: the last dimension is averaged over, and that must not be the one of the examples.
at::Tensor with_column(const at::Tensor& tensor) { return tensor.dim() == 1 ? tensor.unsqueeze(1) : tensor; }

// [n, 1, 1], for as many dimensions.
std::vector<std::int64_t> column_shape(const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(std::max<std::int64_t>(like.dim(), 1)), 1);
  shape[0] = -1;
  return shape;
}

// 1 / this: the share of a row's loss in the mean that the reduction asks for.
std::int64_t denominator(const Loss& loss, const at::Tensor& losses, const ReplicaBatch& batch) {
  if (loss.reduction() == Reduction::kSum) return 1;
  return batch.global_rows * (losses.numel() / batch.rows);
}

}  // namespace

StepRunner::StepRunner(std::shared_ptr<ModuleReplicas> model, Forward forward, CompileOptions options, Push push)
    : model_(std::move(model)),
      forward_(std::move(forward)),
      losses_(options.loss.list()),
      loss_weights_(options.loss_weights),
      steps_per_update_(std::max(options.steps_per_update, options.optimizer.rules().gradient_accumulation_steps.value_or(1))),
      precision_(options.precision),
      train_step_(options.train_step ? options.train_step : default_train_step),
      push_(std::move(push)),
      sums_(model_->size()),
      loss_scale_(options.precision == Precision::kFloat16) {
  if (push_ == nullptr) optimizer_.emplace(model_, without_accumulation(options.optimizer));
  loss_weights_.resize(losses_.size(), 1.0);
  take_metrics(options);
  reset();
}

void StepRunner::take_metrics(CompileOptions& options) {
  const auto add = [&](std::vector<Metric>& metrics, std::size_t output, bool is_weighted) {
    for (auto& metric : metrics) {
      auto name = (losses_.size() > 1 ? str("output_", output, "_") : std::string()) + metric.name();
      const auto is_taken = [&](const std::string& one) {
        return one == "loss" || std::ranges::any_of(metrics_, [&](const auto& other) { return other.name == one; });
      };
      if (is_weighted && is_taken(name)) name = "weighted_" + name;
      const auto first = name;
      for (int n = 1; is_taken(name); ++n) name = str(first, "_", n);
      // The user's own object counts, so that it can be looked at; given twice, the second place gets one of its own.
      const bool is_counting =
          std::ranges::any_of(metrics_, [&](const auto& other) { return other.metric.shares_state_with(metric); });
      metrics_.push_back({is_counting ? metric.renamed(metric.name()) : std::move(metric), name, output, is_weighted});
    }
  };
  add(options.metrics, 0, false);
  for (std::size_t output = 0; output < options.output_metrics.size(); ++output)
    add(options.output_metrics[output], output, false);
  add(options.weighted_metrics, 0, true);
}

Strategy& StepRunner::strategy() const {
  return model_->replicas() == nullptr ? default_strategy() : *model_->replicas()->strategy();
}

std::string StepRunner::loss_name(std::size_t output) const { return str("output_", output, "_loss"); }

std::pair<std::size_t, std::size_t> StepRunner::inputs_and_targets(const data::Element& element) const {
  auto targets = losses_.size();
  for (const auto& tracked : metrics_) targets = std::max(targets, tracked.output + 1);
  const auto inputs = forward_.inputs > 0 ? forward_.inputs : element.size() - std::min(element.size(), targets);
  // A training step of one's own, which says itself what it needs.
  if (targets == 0 && element.size() > inputs) targets = element.size() - inputs;
  if (inputs == 0 || element.size() < inputs + targets)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("an element of the data has ", element.size(), " components; the model takes ",
                              std::max<std::size_t>(inputs, 1), " inputs and ", targets,
                              " targets (one for each loss), in this order: ", element));
  return {inputs, targets};
}

ReplicaBatch StepRunner::batch_of(const data::Element& element, std::int64_t global_rows) const {
  const auto [inputs, targets] = inputs_and_targets(element);
  const auto weights = element.size() - inputs - targets;
  if (weights > 1 && weights != losses_.size())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("an element of the data has ", weights, " components after its ", inputs, " inputs and ", targets,
                              " targets; sample weights are one for all outputs, or one for each: ", element));
  ReplicaBatch batch{{}, {}, {}, 0, global_rows};
  for (std::size_t i = 0; i < inputs; ++i) batch.inputs.push_back(element[i]);
  for (std::size_t i = 0; i < targets; ++i) batch.targets.push_back(element[inputs + i]);
  for (std::size_t i = 0; i < weights; ++i) {
    batch.weights.push_back(element[inputs + targets + i]);
    require_finite_rows(batch.weights.back());
  }
  if (batch.inputs.empty() || batch.inputs[0].dim() == 0)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("the data is not batched: ", element, "; use dataset.batch(size)"));
  batch.rows = batch.inputs[0].size(0);
  return batch;
}

void StepRunner::set_mode(bool is_training) {
  model_->train(is_training);
  is_meeting_ = is_training && has_sync_batch_norm(*model_);
}

void StepRunner::train(const Batch& batch, std::int64_t global_rows) {
  is_updating_ = ++pending_ == steps_per_update_;
  try {
    strategy().run(
        [&](ReplicaContext&, const data::Element& element) {
          naming_batch("in a training step", element, [&] { train_replica(element, global_rows); });
        },
        batch);
  } catch (...) {
    pending_ = 0;  // what it and the steps before it have left is dropped
    throw;
  }
  if (is_updating_) pending_ = 0;
}

void StepRunner::train_replica(const data::Element& element, std::int64_t global_rows) {
  auto batch = batch_of(element, global_rows);
  // A replica without rows takes part where the others wait for it, in their batch norms, then in their losses.
  if (batch.rows == 0) {
    const auto nothing = is_meeting_ ? nothing_of(call_forward(batch.inputs)) : at::Tensor();
    join_losses();
    return minimize(nothing);
  }
  if (!class_weight_.empty()) {
    if (batch.targets.empty())
      throw Error(ErrorCode::kInvalidArgument, "class_weight: the data has no targets, whose classes could be weighed");
    const auto weights = weights_of_classes(batch.targets[0], class_weight_);
    if (batch.weights.empty()) batch.weights.push_back(weights);
    else batch.weights[0] = batch.weights[0] * weights.reshape(column_shape(batch.weights[0]));
  }
  TrainStep step(*this, batch);
  train_step_(step);
}

void StepRunner::train_alone(const data::Element& batch) {
  pending_ = 1;
  is_updating_ = true;
  const OnExit forget([this] { pending_ = 0; });
  if (const auto rows = rows_in(batch); rows > 0)
    naming_batch("in a training step", batch, [&] { train_replica(batch, rows); });
}

void StepRunner::test_alone(const data::Element& batch) {
  if (const auto rows = rows_in(batch); rows > 0) test_replica(batch, rows);
}

void StepRunner::join_losses() const {
  for (std::size_t k = 0; k < losses_.size(); ++k)
    if (losses_[k].is_divided_by_data()) share_by_data(k, nullptr, {});
}

void StepRunner::test(const Batch& batch, std::int64_t global_rows) {
  strategy().run(
      [&](ReplicaContext&, const data::Element& element) {
        naming_batch("in a step of evaluation", element, [&] { test_replica(element, global_rows); });
      },
      batch);
}

void StepRunner::test_replica(const data::Element& element, std::int64_t global_rows) {
  const auto batch = batch_of(element, global_rows);
  if (batch.rows == 0) return join_losses();
  const c10::NoGradGuard no_grad;
  const auto outputs = call_forward(batch.inputs);
  loss(batch, outputs);
  update_metrics(batch, outputs);
}

Tensors StepRunner::call_forward(const Tensors& inputs) {
  const AutocastScope autocast(precision_, inputs[0].device().type());
  const trace::Span span("forward", trace::Category::kCompute);
  auto outputs = is_meeting_ ? call_with_batch_norms(inputs) : forward_.call(inputs);
  if (precision_ != Precision::kFloat32)
    for (auto& output : outputs)
      if (output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf) output = output.to(at::kFloat);
  return outputs;
}

// LibTorch looks at one replica's rows where all replicas' count, and before anybody can tell it so.
Tensors StepRunner::call_with_batch_norms(const Tensors& inputs) {
  try {
    return forward_.call(inputs);
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace()).find("more than 1 value per channel") == std::string_view::npos) throw;
    throw Error(ErrorCode::kInvalidArgument,
                "a replica has one row, which LibTorch's batch norm refuses before the other replicas' rows are counted; make "
                "batches that leave two rows for each replica (drop_remainder), or use lockstep::SyncBatchNorm in the module");
  }
}

at::Tensor StepRunner::share_by_rows(std::size_t k, const ReplicaBatch& batch, const Tensors& outputs) const {
  const auto losses = losses_[k].per_example(with_column(batch.targets[k]), with_column(outputs[k]));
  if (losses.dim() == 0 || losses.size(0) != batch.rows)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("the loss '", losses_[k].name(), "' gave shape ", losses.sizes(), " for ", batch.rows,
                              " examples; it must give one value for each example, without a reduction: one that takes axes "
                              "(dice, tversky) needs those after the first, such as {.axis = {1, 2, 3}}"));
  const auto parts = denominator(losses_[k], losses, batch);
  return batch.weights.empty() ? compute_average_loss(losses, parts) : compute_average_loss(losses, weight_of(batch, k), parts);
}

// What the loss is divided by is known only when all replicas have looked at their examples; one without any gives null.
at::Tensor StepRunner::share_by_data(std::size_t k, const ReplicaBatch* batch, const Tensors& outputs) const {
  losses::Loss::Total total;
  if (batch != nullptr) total = losses_[k].total(with_column(batch->targets[k]), with_column(outputs[k]), weight_of(*batch, k));
  const auto mine = batch != nullptr ? total.divisor.item<double>() : 0.0;
  const auto divisor = replica_context().all_reduce("sum", mine);
  if (batch == nullptr) return {};
  return divisor > 0 ? total.sum / divisor : total.sum * 0;
}

at::Tensor StepRunner::loss(const ReplicaBatch& batch, const Tensors& outputs) {
  if (outputs.size() < losses_.size())
    throw Error(ErrorCode::kInvalidArgument, str("the model gave ", outputs.size(), " outputs, and compile() got ",
                                                 losses_.size(), " losses; give one for each output"));
  at::Tensor total;
  for (std::size_t k = 0; k < losses_.size(); ++k) {
    auto share = losses_[k].is_divided_by_data() ? share_by_data(k, &batch, outputs) : share_by_rows(k, batch, outputs);
    if (losses_.size() > 1) count(batch, k + 1, share);
    if (loss_weights_[k] != 1.0) share = share * loss_weights_[k];
    total = total.defined() ? total + share.to(total.scalar_type()) : share;
  }
  require(total.defined(), "the model was compiled without a loss; give compile() one, or a train_step that needs none");
  count(batch, 0, total);
  return total;
}

void StepRunner::count(const ReplicaBatch& batch, std::size_t which, const at::Tensor& share) {
  const c10::NoGradGuard no_grad;
  auto& sums = sums_[here()];
  if (which == 0) {
    sums.rows += static_cast<double>(batch.rows);
    sums.last = share.detach();
  }
  const auto rows = static_cast<double>(batch.global_rows);
  if (share.is_cpu()) {
    sums.losses[which] += share.item<double>() * rows;
    return;
  }
  auto& sum = sums.on_device[which];
  const auto one = share.detach().to(at::kDouble) * rows;
  sum = sum.defined() ? sum + one : one;
}

// An undefined loss: a part without rows.
void StepRunner::minimize(const at::Tensor& loss) {
  const auto go_back = [&] {
    const trace::Span span("backward", trace::Category::kCompute);
    if (loss.defined()) (loss_scale_.is_on() ? loss * loss_scale_.value() : loss).backward();
  };
  if (is_updating_) {
    go_back();
    return push_ ? push_() : update();
  }
  const auto no_sync = optimizer_->no_sync();
  go_back();
}

void StepRunner::update() {
  const double factor = 1 / (loss_scale_.value() * static_cast<double>(std::max<std::int64_t>(pending_, 1)));
  bool is_finite = true;
  if (factor != 1) {
    optimizer_->synchronize();
    is_finite = !loss_scale_.is_on() || are_gradients_finite(*model_);
    if (is_finite) scale_gradients(*model_, factor);
  }
  if (is_finite) optimizer_->step();
  else optimizer_->zero_grad();
  if (loss_scale_.is_on()) {
    // All replicas have the same gradients: the last to come says it for all.
    replica_context().merge_call([this](Strategy&, const PerReplica<bool>& finite) { loss_scale_.note(finite.values()[0]); },
                                 is_finite);
  }
}

void StepRunner::flush() {
  if (pending_ == 0) return;
  is_updating_ = true;
  strategy().run([&] { update(); });
  pending_ = 0;
}

void StepRunner::forget_gradients() {
  if (std::exchange(pending_, 0) != 0) optimizer_->zero_grad();
}

void StepRunner::update_metrics(const ReplicaBatch& batch, const Tensors& outputs) {
  const c10::NoGradGuard no_grad;
  for (auto& tracked : metrics_) {
    if (outputs.size() <= tracked.output)
      throw Error(ErrorCode::kInvalidArgument, str("the metric '", tracked.name, "' is of output ", tracked.output,
                                                   " (from 0), and the model gave ", outputs.size(), " outputs"));
    const auto weight = tracked.is_weighted ? weight_of(batch, tracked.output) : at::Tensor();
    tracked.metric.update_state(with_column(batch.targets[tracked.output]), with_column(outputs[tracked.output].detach()),
                                weight);
  }
}

std::int64_t StepRunner::rows_of(const Batch& batch) {
  std::int64_t rows = 0;
  for (const auto& element : batch.values())
    if (!element.empty() && element[0].dim() > 0) rows += element[0].size(0);
  return rows;
}

void StepRunner::set_class_weight(const std::map<std::int64_t, double>& weights) {
  if (!weights.empty() && losses_.size() > 1)
    throw Error(ErrorCode::kInvalidArgument, str("class_weight: the model has ", losses_.size(),
                                                 " outputs, and it does not say whose classes are meant; give sample weights"));
  require_finite(weights);
  class_weight_ = weights;
}

}  // namespace lockstep::internal

namespace lockstep {

const Tensors& TrainStep::inputs() const noexcept { return batch_.inputs; }
const Tensors& TrainStep::targets() const noexcept { return batch_.targets; }
const Tensors& TrainStep::sample_weights() const noexcept { return batch_.weights; }
std::int64_t TrainStep::rows() const noexcept { return batch_.rows; }
std::int64_t TrainStep::global_rows() const noexcept { return batch_.global_rows; }
Tensors TrainStep::forward() { return runner_.call_forward(batch_.inputs); }
Tensors TrainStep::forward(const Tensors& inputs) { return runner_.call_forward(inputs); }
at::Tensor TrainStep::loss(const Tensors& outputs) { return runner_.loss(batch_, outputs); }
void TrainStep::minimize(const at::Tensor& loss) { runner_.minimize(loss); }
void TrainStep::update_metrics(const Tensors& outputs) { runner_.update_metrics(batch_, outputs); }

}  // namespace lockstep
