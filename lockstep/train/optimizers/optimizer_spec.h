#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/train/schedules/learning_rate.h"

namespace lockstep {

// What all optimizers share, in Keras's words. At most one of the three clippings.
struct OptimizerRules {
  LearningRate learning_rate = 0.001;
  // Before every update each weight w that has a gradient becomes w - w * weight_decay * learning_rate.
  std::optional<double> weight_decay = std::nullopt;
  // After the sum over the replicas: each gradient's norm is at most this; its elements' size is; the norm of all together is.
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  // A moving average of the weights is kept, average = momentum * average + (1 - momentum) * weights, and becomes the weights
  // every so many steps (absent: when Optimizer::use_averages() is called).
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<std::int64_t> ema_overwrite_frequency = std::nullopt;
  // Every so many step()s one update, with the mean of their gradients. At least 2.
  std::optional<std::int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "";  // "": the kind's
};

// How an optimizer is to be made: its kind, its numbers, and what is done around it. A value; ls::Adam(1e-3) and the other
// functions of optimizers.h give one.
class OptimizerSpec {
 public:
  // Makes an optimizer of LibTorch's, or one that derives from its base, for these parameters.
  using Make =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> parameters, double learning_rate)>;

  // By Keras's name in any case, with its default arguments: "adam", "SGD", ... Throws kInvalidArgument for a name that does
  // not exist, and offers the nearest.
  OptimizerSpec(const char* name);         // NOLINT: a name is an optimizer
  OptimizerSpec(const std::string& name);  // NOLINT: a name is an optimizer

  // One's own. `takes_sparse`: it can use sparse gradients (of embeddings); others are given dense ones. Throws
  // kInvalidArgument for rules that contradict each other.
  OptimizerSpec(std::string kind, OptimizerRules rules, Make make, bool takes_sparse = false);

  const std::string& kind() const noexcept { return kind_; }  // "adam"
  const std::string& name() const noexcept { return rules_.name.empty() ? kind_ : rules_.name; }
  const OptimizerRules& rules() const noexcept { return rules_; }
  bool takes_sparse() const noexcept { return takes_sparse_; }
  // The same optimizer with other rules, or another rate.
  OptimizerSpec with_rules(OptimizerRules rules) const;
  OptimizerSpec with_learning_rate(LearningRate learning_rate) const;

  // As text (JSON) that another task of the job makes the same spec of, bit for bit. to_text() throws kUnimplemented for an
  // optimizer or a schedule of one's own, which text cannot describe; from_text() kInvalidArgument for what is no such text.
  std::string to_text() const;
  static OptimizerSpec from_text(const std::string& text);

  // A new optimizer, with the rate of step 0. It does not know the rules: Optimizer does.
  std::unique_ptr<torch::optim::Optimizer> make(std::vector<at::Tensor> parameters) const;

 private:
  std::string kind_;
  OptimizerRules rules_;
  Make make_;
  bool takes_sparse_ = false;
};

}  // namespace lockstep
