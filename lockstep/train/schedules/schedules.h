#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/train/schedules/learning_rate.h"

// Keras's learning-rate schedules. Each is a value that is called with a step, counted from 0, and can be given wherever a
// LearningRate is wanted. Rates are computed in float32, as Keras does. Constructors throw kInvalidArgument for what makes no
// schedule (decay_steps below 1).

namespace lockstep::schedules {

struct ExponentialDecayOptions {
  double initial_learning_rate = 0.01;
  std::int64_t decay_steps = 1;
  double decay_rate = 0.96;
  bool staircase = false;  // the rate changes every decay_steps only
};

// initial * decay_rate ^ (step / decay_steps)
class ExponentialDecay {
 public:
  explicit ExponentialDecay(const ExponentialDecayOptions& options);
  double operator()(std::int64_t step) const;
  const ExponentialDecayOptions& options() const noexcept { return options_; }

 private:
  ExponentialDecayOptions options_;
};

// initial / (1 + decay_rate * step / decay_steps)
class InverseTimeDecay {
 public:
  explicit InverseTimeDecay(const ExponentialDecayOptions& options);
  double operator()(std::int64_t step) const;
  const ExponentialDecayOptions& options() const noexcept { return options_; }

 private:
  ExponentialDecayOptions options_;
};

struct PolynomialDecayOptions {
  double initial_learning_rate = 0.01;
  std::int64_t decay_steps = 1;
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;  // after decay_steps it begins again, over a multiple of them
};

// From initial to end in decay_steps; afterwards it stays there.
class PolynomialDecay {
 public:
  explicit PolynomialDecay(const PolynomialDecayOptions& options);
  double operator()(std::int64_t step) const;
  const PolynomialDecayOptions& options() const noexcept { return options_; }

 private:
  PolynomialDecayOptions options_;
};

struct CosineDecayOptions {
  double initial_learning_rate = 0.01;
  std::int64_t decay_steps = 1;
  double alpha = 0.0;  // the part of the rate that is left at the end
  // With a target the rate first goes in a line from initial_learning_rate to it, in warmup_steps, and decays from there.
  std::optional<double> warmup_target = std::nullopt;
  std::int64_t warmup_steps = 0;
};

class CosineDecay {
 public:
  explicit CosineDecay(const CosineDecayOptions& options);
  double operator()(std::int64_t step) const;
  const CosineDecayOptions& options() const noexcept { return options_; }

 private:
  CosineDecayOptions options_;
};

struct CosineDecayRestartsOptions {
  double initial_learning_rate = 0.01;
  std::int64_t first_decay_steps = 1;
  double t_mul = 2.0;  // each period is this many times as long as the one before
  double m_mul = 1.0;  // and starts at this many times its rate
  double alpha = 0.0;
};

class CosineDecayRestarts {
 public:
  explicit CosineDecayRestarts(const CosineDecayRestartsOptions& options);
  double operator()(std::int64_t step) const;
  const CosineDecayRestartsOptions& options() const noexcept { return options_; }

 private:
  CosineDecayRestartsOptions options_;
};

struct PiecewiseConstantDecayOptions {
  std::vector<std::int64_t> boundaries = {};  // ascending; a step that equals one is before it
  std::vector<double> values = {};            // one more than boundaries
};

class PiecewiseConstantDecay {
 public:
  explicit PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options);
  double operator()(std::int64_t step) const;
  const PiecewiseConstantDecayOptions& options() const noexcept { return options_; }

 private:
  PiecewiseConstantDecayOptions options_;
};

struct WarmUpOptions {
  LearningRate rate = 0.01;
  std::int64_t steps = 1;
};

// In a line from 0: step k of the first `steps` trains with (k + 1) / steps of the rate. Then `rate`, at its own step.
class WarmUp {
 public:
  explicit WarmUp(const WarmUpOptions& options);
  double operator()(std::int64_t step) const;
  const WarmUpOptions& options() const noexcept { return options_; }

 private:
  WarmUpOptions options_;
};
inline LearningRate warm_up(LearningRate rate, std::int64_t steps) { return WarmUp({std::move(rate), steps}); }

}  // namespace lockstep::schedules

namespace lockstep {

// The linear scaling rule: a batch that is `replicas` times as large is trained with that many times the rate.
double linear_scaling(double rate, int replicas);

}  // namespace lockstep
