#include "lockstep/train/optimizer.h"

#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep {
namespace {

// The square of the norm of a gradient, dense or sparse, in float64.
double squared_norm(const at::Tensor& gradient) {
  const auto values = gradient.layout() == at::kSparse ? gradient.coalesce().values() : gradient;
  const auto real = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
  const double norm = at::linalg_vector_norm(real, 2, at::OptionalIntArrayRef(), false, at::kDouble).item<double>();
  return norm * norm;
}

void require_usable(const torch::optim::Optimizer* made) {
  if (made == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "Optimizer: the function made no optimizer; it must return a new one each time");
  if (dynamic_cast<const torch::optim::LBFGS*>(made) != nullptr)
    throw Error(ErrorCode::kUnimplemented,
                "Optimizer: LBFGS calls the loss several times in a step, which step() cannot do; use SGD, Adam, AdamW, "
                "Adagrad or RMSprop");
}

}  // namespace

Optimizer::Optimizer(std::shared_ptr<ModuleReplicas> model, const Make& make, const OptimizerOptions& options)
    : model_(std::move(model)), options_(options), norms_(std::make_shared<std::vector<double>>(model_->size(), 0.0)) {
  if (options.clip_global_norm && !(*options.clip_global_norm > 0))
    throw Error(ErrorCode::kInvalidArgument,
                str("OptimizerOptions: clip_global_norm is ", *options.clip_global_norm, "; it must be above 0"));
  for (std::size_t replica = 0; replica < model_->size(); ++replica) {
    std::vector<at::Tensor> parameters;
    for (const auto& [name, parameter] : model_->named_parameters(replica)) parameters.push_back(parameter);
    optimizers_.push_back(make(std::move(parameters)));
    require_usable(optimizers_.back().get());
  }
  reducer_ = std::make_shared<GradientReducer>(model_, options.gradients);  // last: it takes the gradients from another one
}

void Optimizer::step() {
  synchronize();
  const auto replica = model_->index_here();
  if (options_.clip_global_norm) clip(replica);
  optimizers_[replica]->step();
  reducer_->end_step();
}

void Optimizer::synchronize() { reducer_->synchronize(); }

void Optimizer::zero_grad() { reducer_->discard(); }

void Optimizer::clip(std::size_t replica) {
  const c10::NoGradGuard no_grad;
  double sum = 0;
  for (const auto& [name, parameter] : model_->named_parameters(replica))
    if (parameter.grad().defined()) sum += squared_norm(parameter.grad());
  const double norm = std::sqrt(sum);
  (*norms_)[replica] = norm;
  if (!(norm > *options_.clip_global_norm)) return;
  for (const auto& [name, parameter] : model_->named_parameters(replica)) {
    if (!parameter.grad().defined()) continue;
    // One replica's gradients are as LibTorch left them, which may be two in one memory: scaled in place, twice.
    if (model_->size() == 1) at::Tensor(parameter).mutable_grad() = parameter.grad() * (*options_.clip_global_norm / norm);
    else at::Tensor(parameter.grad()).mul_(*options_.clip_global_norm / norm);
  }
}

torch::optim::Optimizer& Optimizer::local() const { return *optimizers_[model_->index_here()]; }

void Optimizer::set_learning_rate(double learning_rate) {
  const auto set = [&](torch::optim::Optimizer& optimizer) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
  };
  if (model_->is_in_replica()) return set(local());
  for (const auto& optimizer : optimizers_) set(*optimizer);
}

double Optimizer::learning_rate() const { return local().param_groups().at(0).options().get_lr(); }

double Optimizer::global_norm() const { return (*norms_)[model_->index_here()]; }

Optimizer::NoSync::NoSync(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {
  reducer_->enter_no_sync();
}
Optimizer::NoSync::~NoSync() { reducer_->exit_no_sync(); }

}  // namespace lockstep
