#include "lockstep/train/optimizers/optimizers.h"

#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/train/optimizers/built_in.h"
#include "lockstep/train/optimizers/keras_rules.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

template <typename Options>
OptimizerRules rules_of(const Options& options) {
  return {.learning_rate = options.learning_rate,
          .weight_decay = options.weight_decay,
          .clipnorm = options.clipnorm,
          .clipvalue = options.clipvalue,
          .global_clipnorm = options.global_clipnorm,
          .use_ema = options.use_ema,
          .ema_momentum = options.ema_momentum,
          .ema_overwrite_frequency = options.ema_overwrite_frequency,
          .gradient_accumulation_steps = options.gradient_accumulation_steps,
          .name = options.name};
}

// An argument and where it must lie.
void require_between(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, " is ", value, "; it must be from ", least, " to ", most));
}

void require_not_negative(const char* what, double value) {
  if (value >= 0) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, " is ", value, "; it must not be negative"));
}

// Of Adam's family.
template <typename Options>
void require_betas(const char* what, const Options& options) {
  require_between(str(what, ": beta_1").c_str(), options.beta_1, 0, 1);
  require_between(str(what, ": beta_2").c_str(), options.beta_2, 0, 1);
  require_not_negative(str(what, ": epsilon").c_str(), options.epsilon);
}

template <typename TorchOptions, typename Options>
TorchOptions adam_options(double learning_rate, const Options& options) {
  return TorchOptions(learning_rate)
      .betas({options.beta_1, options.beta_2})
      .eps(options.epsilon)
      .weight_decay(0)
      .amsgrad(options.amsgrad);
}

MadeOptimizer make_sgd(Tensors parameters, double learning_rate, const SGDOptions& options) {
  // Without a momentum there is nothing that nesterov could change, and LibTorch refuses it.
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters),
      torch::optim::SGDOptions(learning_rate).momentum(options.momentum).nesterov(options.nesterov && options.momentum > 0));
}

MadeOptimizer make_adam(Tensors parameters, double learning_rate, const AdamOptions& options) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              adam_options<torch::optim::AdamOptions>(learning_rate, options));
}

MadeOptimizer make_adamw(Tensors parameters, double learning_rate, const AdamWOptions& options) {
  return std::make_unique<torch::optim::AdamW>(
      std::move(parameters),
      adam_options<torch::optim::AdamWOptions>(learning_rate, options).weight_decay(*options.weight_decay));
}

MadeOptimizer make_rmsprop(Tensors parameters, double learning_rate, const RMSpropOptions& options) {
  return std::make_unique<torch::optim::RMSprop>(std::move(parameters), torch::optim::RMSpropOptions(learning_rate)
                                                                            .alpha(options.rho)
                                                                            .eps(options.epsilon)
                                                                            .momentum(options.momentum)
                                                                            .centered(options.centered));
}

}  // namespace

OptimizerSpec SGD(const SGDOptions& options) {
  require_between("SGD: momentum", options.momentum, 0, 1);
  return {"sgd", rules_of(options), BuiltIn{&make_sgd, options}, /*takes_sparse=*/true};
}

OptimizerSpec Adam(const AdamOptions& options) {
  require_betas("Adam", options);
  return {"adam", rules_of(options), BuiltIn{&make_adam, options}};
}

OptimizerSpec AdamW(const AdamWOptions& options) {
  require_betas("AdamW", options);
  if (!options.weight_decay)
    throw Error(ErrorCode::kInvalidArgument, "AdamW: weight_decay is absent; give a number, or use Adam");
  auto rules = rules_of(options);
  rules.weight_decay.reset();  // LibTorch's AdamW does it itself, and the same
  return {"adamw", std::move(rules), BuiltIn{&make_adamw, options}};
}

OptimizerSpec RMSprop(const RMSpropOptions& options) {
  require_between("RMSprop: rho", options.rho, 0, 1);
  require_between("RMSprop: momentum", options.momentum, 0, 1);
  require_not_negative("RMSprop: epsilon", options.epsilon);
  return {"rmsprop", rules_of(options), BuiltIn{&make_rmsprop, options}};
}

OptimizerSpec Adagrad(const AdagradOptions& options) {
  require_not_negative("Adagrad: initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Adagrad: epsilon", options.epsilon);
  return {"adagrad", rules_of(options), BuiltIn{&make_adagrad, options}, /*takes_sparse=*/true};
}

OptimizerSpec Adadelta(const AdadeltaOptions& options) {
  require_between("Adadelta: rho", options.rho, 0, 1);
  require_not_negative("Adadelta: epsilon", options.epsilon);
  return {"adadelta", rules_of(options), BuiltIn{&make_adadelta, options}};
}

OptimizerSpec Adamax(const AdamaxOptions& options) {
  require_betas("Adamax", options);
  return {"adamax", rules_of(options), BuiltIn{&make_adamax, options}};
}

OptimizerSpec Nadam(const NadamOptions& options) {
  require_betas("Nadam", options);
  return {"nadam", rules_of(options), BuiltIn{&make_nadam, options}};
}

OptimizerSpec Ftrl(const FtrlOptions& options) {
  require_not_negative("Ftrl: initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Ftrl: l1_regularization_strength", options.l1_regularization_strength);
  require_not_negative("Ftrl: l2_regularization_strength", options.l2_regularization_strength);
  require_not_negative("Ftrl: l2_shrinkage_regularization_strength", options.l2_shrinkage_regularization_strength);
  if (options.learning_rate_power > 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("Ftrl: learning_rate_power is ", options.learning_rate_power, "; it must be at most 0"));
  return {"ftrl", rules_of(options), BuiltIn{&make_ftrl, options}};
}

OptimizerSpec Lion(const LionOptions& options) {
  if (!(options.beta_1 > 0 && options.beta_1 <= 1))
    throw Error(ErrorCode::kInvalidArgument, str("Lion: beta_1 is ", options.beta_1, "; it must be above 0 and at most 1"));
  return {"lion", rules_of(options), BuiltIn{&make_lion, options}};
}

OptimizerSpec SGD(LearningRate learning_rate) { return SGD(SGDOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Adam(LearningRate learning_rate) { return Adam(AdamOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec AdamW(LearningRate learning_rate) { return AdamW(AdamWOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec RMSprop(LearningRate learning_rate) { return RMSprop(RMSpropOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Adagrad(LearningRate learning_rate) { return Adagrad(AdagradOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Adadelta(LearningRate learning_rate) {
  return Adadelta(AdadeltaOptions{.learning_rate = std::move(learning_rate)});
}
OptimizerSpec Adamax(LearningRate learning_rate) { return Adamax(AdamaxOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Nadam(LearningRate learning_rate) { return Nadam(NadamOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Ftrl(LearningRate learning_rate) { return Ftrl(FtrlOptions{.learning_rate = std::move(learning_rate)}); }
OptimizerSpec Lion(LearningRate learning_rate) { return Lion(LionOptions{.learning_rate = std::move(learning_rate)}); }

}  // namespace lockstep
