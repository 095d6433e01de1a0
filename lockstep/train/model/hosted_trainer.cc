#include "lockstep/train/model/hosted_trainer.h"

#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/node.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"
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

bool has_shuffle(const data::Dataset& dataset) {
  bool found = false;
  data::internal::for_each_node(*dataset.node(), [&](const data::internal::Node& node) { found = found || node.is_shuffle(); });
  return found;
}

data::Element moved_to(const c10::Device& device, data::Element batch) {
  for (auto& component : batch.components())
    if (!component.is_bytes()) component.tensor() = component.tensor().to(device);
  return batch;
}

// A worker's step is one replica's, whatever devices the strategy has in whose scope closures run.
struct Alone {
  ModeGuard guard{Mode{}};
};

std::unique_ptr<StepRunner> make_runner(const HostedCopy& copy, const TrainerRecipe& recipe, StepRunner::Push push) {
  const Alone alone;
  return std::make_unique<StepRunner>(copy.module(), copy.forward(), options_of(recipe), std::move(push));
}

}  // namespace

c10::Device workers_device() {
  const auto replicas = strategy_replicas(current_mode());
  return replicas == nullptr ? c10::Device(c10::kCPU) : replicas->torch_device(0);
}

std::shared_ptr<ModuleReplicas> workers_copy(const std::shared_ptr<torch::nn::Module>& module) {
  module->to(workers_device());
  const Alone alone;
  return std::make_shared<ModuleReplicas>([&] { return module; });
}

HostedInput::HostedInput(data::Dataset dataset, End end, const InputPlace& begin)
    : dataset_(std::move(dataset)), end_(end), begin_(begin) {}

std::optional<data::Element> HostedInput::next(std::int64_t epoch) {
  if (end_ == End::kOfData && dataset_.cardinality() == data::kInfinite)
    throw Error(ErrorCode::kInvalidArgument,
                "the data of a worker has no end (repeat()?), and is to be read to its end; say how many steps are wanted");
  if (!epoch_) go_to(begin_);
  else if (end_ == End::kOfData && epoch != *epoch_ && iterator_) end_pass();
  epoch_ = epoch;
  const bool is_new = !iterator_.has_value();
  if (is_new) iterator_.emplace(dataset_.make_iterator());
  if (auto batch = iterator_->next()) {
    ++place_.batches;
    return batch;
  }
  if (is_new)
    throw Error(ErrorCode::kInvalidArgument,
                "the data of a worker has no batch; is a file empty, are there more workers than shards, or does batch() drop "
                "the remainder?");
  if (end_ == End::kOfData) return std::nullopt;
  end_pass();
  return next(epoch);
}

// Passes over data in the same order each time leave nothing behind.
void HostedInput::go_to(const InputPlace& place) {
  for (std::int64_t pass = 0; pass < place.passes && has_shuffle(dataset_); ++pass)
    for (auto iterator = dataset_.make_iterator(); iterator.next();) continue;
  if (place.batches > 0) iterator_.emplace(dataset_.make_iterator());
  for (std::int64_t batch = 0; batch < place.batches && iterator_->next(); ++batch) continue;
  place_ = place;
}

void HostedInput::end_pass() {
  iterator_.reset();
  ++place_.passes;
  place_.batches = 0;
}

HostedTrainer::HostedTrainer(HostedCopy& copy, const TrainerRecipe& recipe)
    : copy_(copy.shared_from_this()),
      global_clipnorm_(recipe.global_clipnorm),
      runner_(make_runner(copy, recipe, [this] { push(); })) {
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
  for (const auto& tracked : runner_->metrics()) {
    auto& state = counts.metrics.emplace_back(tracked.metric.state());
    for (auto& tensor : state) tensor = tensor.cpu();
  }
  return counts;
}

StepCounts HostedTrainer::train(const data::Element& batch) {
  const Alone alone;
  begin(true);
  runner_->train_alone(moved_to(copy_->device(), batch));
  return counts();
}

StepCounts HostedTrainer::test(const data::Element& batch) {
  const Alone alone;
  begin(false);
  runner_->test_alone(moved_to(copy_->device(), batch));
  return counts();
}

StepCounts HostedTrainer::test_all(const data::Dataset& batches, const std::stop_token& cancelled) {
  const Alone alone;
  begin(false);
  for (auto iterator = batches.make_iterator(); const auto batch = iterator.next();) {
    if (cancelled.stop_requested()) throw Error(ErrorCode::kCancelled, "evaluate: a shard is no longer wanted");
    runner_->test_alone(moved_to(copy_->device(), *batch));
  }
  return counts();
}

}  // namespace lockstep::internal
