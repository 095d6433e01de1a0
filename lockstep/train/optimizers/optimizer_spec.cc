#include "lockstep/train/optimizers/optimizer_spec.h"

#include <torch/optim/optimizer.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/train/optimizers/optimizers.h"

namespace lockstep {
namespace {

using MakeSpec = OptimizerSpec (*)();

const std::map<std::string, MakeSpec>& makers() {
  static const std::map<std::string, MakeSpec> all = {
      {"sgd", [] { return SGD(); }},         {"adam", [] { return Adam(); }},       {"adamw", [] { return AdamW(); }},
      {"rmsprop", [] { return RMSprop(); }}, {"adagrad", [] { return Adagrad(); }}, {"adadelta", [] { return Adadelta(); }},
      {"adamax", [] { return Adamax(); }},   {"nadam", [] { return Nadam(); }},     {"ftrl", [] { return Ftrl(); }},
      {"lion", [] { return Lion(); }}};
  return all;
}

OptimizerSpec spec_by_name(const std::string& name) {
  std::string lower = name;
  for (auto& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto found = makers().find(lower);
  if (found != makers().end()) return found->second();
  std::vector<std::string> names;
  for (const auto& [known, make] : makers()) names.push_back(known);
  throw Error(ErrorCode::kInvalidArgument, unknown_name("an optimizer", name, names));
}

void require_rules(const std::string& kind, const OptimizerRules& rules) {
  const auto refuse = [&](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, str(kind, ": ", parts...)); };
  const int clippings = (rules.clipnorm ? 1 : 0) + (rules.clipvalue ? 1 : 0) + (rules.global_clipnorm ? 1 : 0);
  if (clippings > 1) refuse("more than one of clipnorm, clipvalue and global_clipnorm; give one of them");
  for (const auto& [name, value] : {std::pair("clipnorm", rules.clipnorm), std::pair("clipvalue", rules.clipvalue),
                                    std::pair("global_clipnorm", rules.global_clipnorm)})
    if (value && !(*value > 0)) refuse(name, " is ", *value, "; it must be above 0");
  if (rules.weight_decay && !(*rules.weight_decay >= 0))
    refuse("weight_decay is ", *rules.weight_decay, "; it must not be negative");
  if (!(rules.ema_momentum >= 0 && rules.ema_momentum <= 1))
    refuse("ema_momentum is ", rules.ema_momentum, "; it must be from 0 to 1");
  if (rules.ema_overwrite_frequency && *rules.ema_overwrite_frequency < 1)
    refuse("ema_overwrite_frequency is ", *rules.ema_overwrite_frequency, "; it must be at least 1");
  if (rules.gradient_accumulation_steps && *rules.gradient_accumulation_steps < 2)
    refuse("gradient_accumulation_steps is ", *rules.gradient_accumulation_steps, "; it must be at least 2");
}

}  // namespace

OptimizerSpec::OptimizerSpec(const char* name) : OptimizerSpec(std::string(name)) {}
OptimizerSpec::OptimizerSpec(const std::string& name) : OptimizerSpec(spec_by_name(name)) {}

OptimizerSpec::OptimizerSpec(std::string kind, OptimizerRules rules, Make make, bool takes_sparse)
    : kind_(std::move(kind)), rules_(std::move(rules)), make_(std::move(make)), takes_sparse_(takes_sparse) {
  require_rules(kind_, rules_);
  if (make_ == nullptr) throw Error(ErrorCode::kInvalidArgument, str(kind_, ": there is no function that makes the optimizer"));
}

OptimizerSpec OptimizerSpec::with_rules(OptimizerRules rules) const { return {kind_, std::move(rules), make_, takes_sparse_}; }

OptimizerSpec OptimizerSpec::with_learning_rate(LearningRate learning_rate) const {
  auto rules = rules_;
  rules.learning_rate = std::move(learning_rate);
  return with_rules(std::move(rules));
}

std::unique_ptr<torch::optim::Optimizer> OptimizerSpec::make(std::vector<at::Tensor> parameters) const {
  auto made = make_(std::move(parameters), rules_.learning_rate.at(0));
  if (made == nullptr) throw Error(ErrorCode::kInvalidArgument, str(kind_, ": the function made no optimizer"));
  return made;
}

}  // namespace lockstep
