#include "lockstep/train/optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/replica/recording.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/train/optimizers/clip.h"

namespace lockstep {
namespace {

void require_usable(const torch::optim::Optimizer* made) {
  if (made == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "Optimizer: the function made no optimizer; it must return a new one each time");
  if (dynamic_cast<const torch::optim::LBFGS*>(made) != nullptr)
    throw Error(ErrorCode::kUnimplemented,
                "Optimizer: LBFGS calls the loss several times in a step, which step() cannot do; use SGD, Adam, AdamW, "
                "Adagrad or RMSprop");
}

void require_positive(const char* what, const std::optional<double>& value) {
  if (!value || *value > 0) return;
  throw Error(ErrorCode::kInvalidArgument, str("OptimizerOptions: ", what, " is ", *value, "; it must be above 0"));
}

void set_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

void set_scheduled_rate(torch::optim::Optimizer& optimizer, const OptimizerRules& rules, std::int64_t steps) {
  if (rules.learning_rate.is_schedule()) set_rate(optimizer, rules.learning_rate.at(steps));
}

}  // namespace

// What a replica counts and keeps beside LibTorch's optimizer.
struct alignas(64) Optimizer::Progress {
  std::int64_t steps = 0;  // of step(), whether it updated or not
  double norm = 0;
  std::vector<at::Tensor> averages = {};  // by parameter; empty: not begun
};

Optimizer::Optimizer(std::shared_ptr<ModuleReplicas> model, const Make& make, const OptimizerOptions& options)
    : model_(std::move(model)), options_(options) {
  build(make);
}

Optimizer::Optimizer(std::shared_ptr<ModuleReplicas> model, const OptimizerSpec& spec, const GradientOptions& gradients)
    : model_(std::move(model)), spec_(spec) {
  const auto& rules = spec.rules();
  options_ = {.gradients = gradients,
              .clip_global_norm = rules.global_clipnorm,
              .clip_norm = rules.clipnorm,
              .clip_value = rules.clipvalue};
  // Several backward()s come before a sum, which begins with the step that updates.
  if (rules.gradient_accumulation_steps) options_.gradients.overlap = false;
  build([&](std::vector<at::Tensor> parameters) { return spec.make(std::move(parameters)); });
}

void Optimizer::build(const Make& make) {
  require_positive("clip_global_norm", options_.clip_global_norm);
  require_positive("clip_norm", options_.clip_norm);
  require_positive("clip_value", options_.clip_value);
  progress_ = std::make_shared<std::vector<Progress>>(model_->size());
  for (std::size_t replica = 0; replica < model_->size(); ++replica) {
    std::vector<at::Tensor> parameters;
    for (const auto& [name, parameter] : model_->named_parameters(replica)) parameters.push_back(parameter);
    optimizers_.push_back(make(std::move(parameters)));
    require_usable(optimizers_.back().get());
    fused_.push_back(options_.gradients.fuses_updates ? FusedStep::make(*optimizers_.back()) : nullptr);
  }
  reducer_ = std::make_shared<GradientReducer>(model_, options_.gradients);  // last: it takes the gradients from another one
}

void Optimizer::step() {
  const auto replica = model_->index_here();
  auto& progress = (*progress_)[replica];
  auto* const recording = model_->replicas() == nullptr ? nullptr : model_->replicas()->recording();
  if (recording != nullptr) require_recordable(*recording);
  if (is_due(replica)) {
    synchronize();
    update(replica);
    reducer_->end_step();
  } else if (model_->replicas() != nullptr && !model_->is_in_replica()) {
    synchronize();  // throws: only replicas step
  } else {
    model_->note_synchronized(replica);  // the gradients stay, and the next backward() adds to them
  }
  if (spec_ && spec_->rules().use_ema) average(replica);
  ++progress.steps;
  if (recording != nullptr) take_part_in(*recording, replica);
}

void Optimizer::take_part_in(Recording& recording, std::size_t replica) const {
  auto* const progress = &(*progress_)[replica];
  recording.add(
      {.is_current = [reducer = reducer_, plan = reducer_->plan_number()] { return reducer->is_unchanged_since(plan); }});
  recording.add_first({.before = [rules = spec_ ? spec_->rules() : OptimizerRules(), local = optimizers_[replica],
                                  progress] { set_scheduled_rate(*local, rules, progress->steps); },
                       .after = [progress] { ++progress->steps; },
                       .undo = [progress] { --progress->steps; },
                       .owner = progress_});
}

void Optimizer::require_recordable(Recording& recording) const {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::kUnimplemented, what + " cannot be recorded"); };
  if (std::ranges::any_of(fused_, [](const auto& one) { return one == nullptr; }))
    refuse("a step of an optimizer that is not SGD, Adam or AdamW, made with GradientOptions::fuses_updates,");
  if (!recording.is_first_use_of(&(*progress_)[model_->index_here()])) refuse("a second step of one optimizer");
  if (options_.clip_global_norm || options_.clip_norm) refuse("clipping by a norm");
  if (!spec_) return;
  if (spec_->rules().gradient_accumulation_steps) refuse("the accumulation of gradients");
  if (spec_->rules().use_ema) refuse("a moving average of the weights");
  if (spec_->rules().weight_decay) refuse("Keras's weight decay");
}

bool Optimizer::is_due(std::size_t replica) const {
  const auto every = spec_ ? spec_->rules().gradient_accumulation_steps.value_or(1) : 1;
  return ((*progress_)[replica].steps + 1) % every == 0;
}

void Optimizer::update(std::size_t replica) {
  const trace::Span span("optimizer", trace::Category::kOptimizer);
  if (spec_) {
    const auto& rules = spec_->rules();
    set_scheduled_rate(*optimizers_[replica], rules, (*progress_)[replica].steps);
    if (rules.gradient_accumulation_steps) scale_accumulated(replica);
  }
  if (options_.clip_global_norm || options_.clip_norm || options_.clip_value) clip(replica);
  if (spec_ && spec_->rules().weight_decay) decay(replica);
  if (spec_ && !spec_->takes_sparse())
    for (auto& group : optimizers_[replica]->param_groups())
      for (auto& parameter : group.params())
        if (parameter.grad().defined() && parameter.grad().layout() == at::kSparse)
          parameter.mutable_grad() = parameter.grad().to_dense();
  step_local(replica);
}

void Optimizer::step_local(std::size_t replica) {
  auto* const recording = model_->replicas() == nullptr ? nullptr : model_->replicas()->recording();
  auto* const fused = fused_[replica].get();
  const auto when = recording != nullptr ? FusedStep::When::kRecorded : FusedStep::When::kDone;
  if (fused != nullptr && fused->step(when)) {
    if (recording == nullptr) return;
    auto part = fused->replay_part();
    part.owner = std::make_shared<std::pair<std::shared_ptr<FusedStep>, std::shared_ptr<torch::optim::Optimizer>>>(
        fused_[replica], optimizers_[replica]);
    recording->add(std::move(part));
    return;
  }
  if (recording != nullptr) throw Error(ErrorCode::kUnimplemented, "a step with sparse gradients cannot be recorded");
  optimizers_[replica]->step();
}

void Optimizer::synchronize() { reducer_->synchronize(); }

void Optimizer::zero_grad() { reducer_->discard(); }

void Optimizer::change_gradients(std::size_t replica, const std::function<void(at::Tensor&)>& change) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model_->named_parameters(replica)) {
    if (!parameter.grad().defined()) continue;
    auto gradient = parameter.grad();
    // One replica's gradients are as LibTorch left them, which may be two in one memory: changed in place, twice.
    if (model_->size() == 1) gradient = gradient.clone();
    change(gradient);
    if (!gradient.is_same(parameter.grad())) at::Tensor(parameter).mutable_grad() = gradient;
  }
}

void Optimizer::scale_accumulated(std::size_t replica) {
  const auto every = static_cast<double>(*spec_->rules().gradient_accumulation_steps);
  change_gradients(replica, [&](at::Tensor& gradient) { gradient.div_(every); });
}

void Optimizer::clip(std::size_t replica) {
  if (options_.clip_norm) change_gradients(replica, [&](at::Tensor& gradient) { clip_norm(gradient, *options_.clip_norm); });
  if (options_.clip_value) change_gradients(replica, [&](at::Tensor& gradient) { clip_value(gradient, *options_.clip_value); });
  if (!options_.clip_global_norm) return;
  double sum = 0;
  for (const auto& [name, parameter] : model_->named_parameters(replica))
    if (parameter.grad().defined()) sum += squared_norm(parameter.grad());
  const double norm = std::sqrt(sum);
  (*progress_)[replica].norm = norm;
  if (norm > *options_.clip_global_norm)
    change_gradients(replica, [&](at::Tensor& gradient) { gradient.mul_(*options_.clip_global_norm / norm); });
}

void Optimizer::decay(std::size_t replica) {
  const c10::NoGradGuard no_grad;
  for (auto& group : optimizers_[replica]->param_groups())
    for (auto& parameter : group.params())
      if (parameter.grad().defined()) parameter.mul_(1 - *spec_->rules().weight_decay * group.options().get_lr());
}

void Optimizer::average(std::size_t replica) {
  const c10::NoGradGuard no_grad;
  const auto& rules = spec_->rules();
  auto& progress = (*progress_)[replica];
  const auto updates = progress.steps / rules.gradient_accumulation_steps.value_or(1);
  const double momentum = updates == 0 ? 0.0 : rules.ema_momentum;
  const auto parameters = model_->named_parameters(replica);
  const bool is_new = progress.averages.empty();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (is_new) progress.averages.push_back(at::zeros_like(parameters[i].second).detach());
    progress.averages[i].mul_(momentum).add_(parameters[i].second, 1 - momentum);
  }
  if (rules.ema_overwrite_frequency && (updates + 1) % *rules.ema_overwrite_frequency == 0)
    for (std::size_t i = 0; i < parameters.size(); ++i) at::Tensor(parameters[i].second).copy_(progress.averages[i]);
}

void Optimizer::use_averages() {
  const c10::NoGradGuard no_grad;
  const bool is_one = model_->is_in_replica();
  for (std::size_t replica = 0; replica < model_->size(); ++replica) {
    if (is_one && replica != model_->index_here()) continue;
    const auto parameters = model_->named_parameters(replica);
    const auto& averages = (*progress_)[replica].averages;
    for (std::size_t i = 0; i < averages.size(); ++i) at::Tensor(parameters[i].second).copy_(averages[i]);
  }
}

torch::optim::Optimizer& Optimizer::local() const { return *optimizers_[model_->index_here()]; }

void Optimizer::set_learning_rate(double learning_rate) {
  if (spec_ && spec_->rules().learning_rate.is_schedule())
    throw Error(ErrorCode::kInvalidArgument, str("set_learning_rate(", learning_rate,
                                                 "): a schedule gives the learning rate of this optimizer; make it with a "
                                                 "number to set it"));
  if (!(learning_rate >= 0 && std::isfinite(learning_rate)))
    throw Error(ErrorCode::kInvalidArgument, str("set_learning_rate(", learning_rate, "): a rate is a number from 0 on"));
  if (model_->is_in_replica()) return set_rate(local(), learning_rate);
  for (const auto& optimizer : optimizers_) set_rate(*optimizer, learning_rate);
}

double Optimizer::learning_rate() const {
  if (spec_ && spec_->rules().learning_rate.is_schedule())
    return spec_->rules().learning_rate.at((*progress_)[model_->index_here()].steps);
  return local().param_groups().at(0).options().get_lr();
}

std::int64_t Optimizer::iterations() const {
  const auto every = spec_ ? spec_->rules().gradient_accumulation_steps.value_or(1) : 1;
  return (*progress_)[model_->index_here()].steps / every;
}

double Optimizer::global_norm() const { return (*progress_)[model_->index_here()].norm; }

OptimizerState Optimizer::state() const {
  const auto parameters = model_->named_parameters(0);
  auto state = get_optimizer_state(*optimizers_[0], parameters);
  const auto& progress = (*progress_)[0];
  for (std::size_t i = 0; i < progress.averages.size(); ++i)
    state.tensors.emplace_back(str(kAveragePrefix, parameters[i].first), progress.averages[i].clone());
  state.numbers.emplace_back(kStepsName, static_cast<double>(progress.steps));
  return state;
}

namespace {

// A state's two owners: LibTorch's optimizer, and ours.
struct DividedState {
  explicit DividedState(const OptimizerState& state) {
    for (const auto& [name, tensor] : state.tensors)
      (name.starts_with(kAveragePrefix) ? averages : rest.tensors).emplace_back(name, tensor);
    for (const auto& [name, number] : state.numbers) {
      if (name == kStepsName) steps = static_cast<std::int64_t>(number);
      else rest.numbers.emplace_back(name, number);
    }
  }

  OptimizerState rest;
  NamedTensors averages;
  std::int64_t steps = 0;
};

}  // namespace

void Optimizer::check_state(const OptimizerState& state) const {
  const DividedState divided(state);
  const auto parameters = model_->named_parameters(0);
  take_averages(divided.averages, parameters);
  check_optimizer_state(*optimizers_[0], parameters, divided.rest);
}

void Optimizer::load_state(const OptimizerState& state) {
  if (model_->is_in_replica())
    throw Error(ErrorCode::kFailedPrecondition, "load_state() inside run(); call it outside, where it reaches all replicas");
  const DividedState divided(state);
  for (std::size_t replica = 0; replica < model_->size(); ++replica) {
    const auto parameters = model_->named_parameters(replica);
    auto loaded = take_averages(divided.averages, parameters);  // before anything is changed
    set_optimizer_state(*optimizers_[replica], parameters, divided.rest);
    (*progress_)[replica] = {.steps = divided.steps, .norm = 0, .averages = std::move(loaded)};
  }
}

Optimizer::NoSync::NoSync(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {
  reducer_->enter_no_sync();
}
Optimizer::NoSync::~NoSync() { reducer_->exit_no_sync(); }

}  // namespace lockstep
