#include "lockstep/train/model/hosted_trainer.h"

#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/train/model/step_runner.h"
#include "lockstep/train/optimizers/clip.h"
#include "lockstep/variable/module_replicas.h"

namespace lockstep::internal {
namespace {

std::vector<Metric> metrics_of(const std::vector<std::string>& texts) {
  std::vector<Metric> metrics;
  for (const auto& text : texts) metrics.push_back(Metric::from_text(text));
  return metrics;
}

LossList losses_of(const std::vector<std::string>& texts) {
  LossList losses;
  for (const auto& text : texts) losses.add(Loss::from_text(text));
  return losses;
}

CompileOptions options_of(const TrainerRecipe& recipe) {
  CompileOptions options{.loss = losses_of(recipe.losses),
                         .loss_weights = recipe.loss_weights,
                         .metrics = metrics_of(recipe.metrics),
                         .weighted_metrics = metrics_of(recipe.weighted_metrics),
                         .precision = recipe.precision};
  for (const auto& texts : recipe.output_metrics) options.output_metrics.push_back(metrics_of(texts));
  return options;
}

}  // namespace

HostedInput::HostedInput(data::Dataset dataset, bool is_endless) : dataset_(std::move(dataset)), is_endless_(is_endless) {}

std::optional<data::Element> HostedInput::next() {
  if (!is_endless_ && dataset_.cardinality() == data::kInfinite)
    throw Error(ErrorCode::kInvalidArgument,
                "the data of a worker has no end (repeat()?), and is to be read to its end; say how many steps are wanted");
  const bool is_new = !iterator_.has_value();
  if (is_new) iterator_.emplace(dataset_.make_iterator());
  auto batch = iterator_->next();
  if (batch) return batch;
  if (is_new)
    throw Error(ErrorCode::kInvalidArgument,
                "the data of a worker has no batch; is a file empty, are there more workers than shards, or does batch() drop "
                "the remainder?");
  if (!is_endless_) return std::nullopt;
  iterator_.reset();
  return next();
}

HostedTrainer::HostedTrainer(HostedCopy& copy, const TrainerRecipe& recipe)
    : copy_(copy.shared_from_this()),
      global_clipnorm_(recipe.global_clipnorm),
      runner_(std::make_unique<StepRunner>(copy.module(), copy.forward(), options_of(recipe), [this] { push(); })) {
  runner_->set_class_weight(recipe.class_weight);
}

HostedTrainer::~HostedTrainer() = default;

void HostedTrainer::push() {
  if (global_clipnorm_) {
    const c10::NoGradGuard no_grad;
    const auto parameters = copy_->module()->named_parameters(0);
    double sum = 0;
    for (const auto& [name, parameter] : parameters)
      if (parameter.grad().defined()) sum += squared_norm(parameter.grad());
    const double norm = std::sqrt(sum);
    // New tensors: LibTorch may have left two gradients in one memory, which would be scaled twice.
    for (auto [name, parameter] : parameters)
      if (norm > *global_clipnorm_ && parameter.grad().defined())
        parameter.mutable_grad() = parameter.grad() * (*global_clipnorm_ / norm);
  }
  copy_->push();
}

void HostedTrainer::begin(bool is_training) {
  runner_->reset();
  runner_->set_mode(is_training);
  copy_->forget();
  copy_->pull();
}

StepCounts HostedTrainer::counts() const {
  StepCounts counts{.losses = runner_->loss_sums()};
  counts.rows = static_cast<std::int64_t>(counts.losses.back());
  for (const auto& tracked : runner_->metrics()) counts.metrics.push_back(tracked.metric.state());
  return counts;
}

StepCounts HostedTrainer::train(const data::Element& batch) {
  begin(true);
  runner_->train_alone(batch);
  return counts();
}

StepCounts HostedTrainer::test(const data::Element& batch) {
  begin(false);
  runner_->test_alone(batch);
  return counts();
}

StepCounts HostedTrainer::test_all(const data::Dataset& batches, const std::stop_token& cancelled) {
  begin(false);
  for (auto iterator = batches.make_iterator(); const auto batch = iterator.next();) {
    if (cancelled.stop_requested()) throw Error(ErrorCode::kCancelled, "evaluate: a shard is no longer wanted");
    runner_->test_alone(*batch);
  }
  return counts();
}

}  // namespace lockstep::internal
