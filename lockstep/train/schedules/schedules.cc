#include "lockstep/train/schedules/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void require_rate(const char* what, double rate) {
  if (rate >= 0 && std::isfinite(rate)) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, " is ", rate, "; a learning rate is a finite number of at least 0"));
}

}  // namespace

LearningRate::LearningRate(double rate) : rate_(rate) { require_rate("the learning rate", rate); }

LearningRate::LearningRate(Schedule schedule, int) : schedule_(std::move(schedule)) {
  require(schedule_ != nullptr,
          "LearningRate: the schedule is empty; give a number or something that can be called with a step");
}

double LearningRate::at(std::int64_t step) const {
  if (!is_schedule()) return rate_;
  const double rate = schedule_(step);
  if (!(rate >= 0 && std::isfinite(rate))) require_rate(str("the schedule's learning rate at step ", step).c_str(), rate);
  return rate;
}

double linear_scaling(double rate, int replicas) {
  if (replicas < 1)
    throw Error(ErrorCode::kInvalidArgument, str("linear_scaling: ", replicas, " replicas; there must be at least 1"));
  require_rate("linear_scaling: the rate", rate);
  return rate * replicas;
}

namespace schedules {
namespace {

void require_steps(const char* what, std::int64_t steps) {
  if (steps > 0) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, " is ", steps, "; it must be above 0"));
}

// Keras computes rates in float32, and which side of a boundary a step falls on, or how near to 0 a rate comes, depends on its
// rounding: so does this, operation by operation.
float single(double value) { return static_cast<float>(value); }
float single(std::int64_t value) { return static_cast<float>(value); }

constexpr float kPi = std::numbers::pi_v<float>;

// step / decay_steps, in a staircase whole.
float progress(std::int64_t step, const ExponentialDecayOptions& options) {
  const float part = single(step) / single(options.decay_steps);
  return options.staircase ? std::floor(part) : part;
}

float cosine(float part, double alpha) { return single(1 - alpha) * (0.5F * (1 + std::cos(kPi * part))) + single(alpha); }

}  // namespace

ExponentialDecay::ExponentialDecay(const ExponentialDecayOptions& options) : options_(options) {
  require_steps("ExponentialDecay: decay_steps", options.decay_steps);
}

double ExponentialDecay::operator()(std::int64_t step) const {
  return single(options_.initial_learning_rate) * std::pow(single(options_.decay_rate), progress(step, options_));
}

InverseTimeDecay::InverseTimeDecay(const ExponentialDecayOptions& options) : options_(options) {
  require_steps("InverseTimeDecay: decay_steps", options.decay_steps);
}

double InverseTimeDecay::operator()(std::int64_t step) const {
  return single(options_.initial_learning_rate) / (1 + single(options_.decay_rate) * progress(step, options_));
}

PolynomialDecay::PolynomialDecay(const PolynomialDecayOptions& options) : options_(options) {
  require_steps("PolynomialDecay: decay_steps", options.decay_steps);
}

double PolynomialDecay::operator()(std::int64_t step) const {
  float at = single(step);
  float steps = single(options_.decay_steps);
  if (options_.cycle) steps *= step == 0 ? 1.0F : std::ceil(at / steps);
  else at = std::min(at, steps);
  const float initial = single(options_.initial_learning_rate);
  const float end = single(options_.end_learning_rate);
  return (initial - end) * std::pow(1 - at / steps, single(options_.power)) + end;
}

CosineDecay::CosineDecay(const CosineDecayOptions& options) : options_(options) {
  require_steps("CosineDecay: decay_steps", options.decay_steps);
  if (options.warmup_steps < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("CosineDecay: warmup_steps is ", options.warmup_steps, "; it must not be negative"));
}

double CosineDecay::operator()(std::int64_t step) const {
  const float at = single(step);
  const float decay = single(options_.decay_steps);
  const float initial = single(options_.initial_learning_rate);
  if (!options_.warmup_target) return initial * cosine(std::min(at, decay) / decay, options_.alpha);
  const float warmup = single(options_.warmup_steps);
  const float target = single(*options_.warmup_target);
  if (at < warmup) return (target - initial) * (at / warmup) + initial;
  return target * cosine((std::min(at, decay + warmup) - warmup) / decay, options_.alpha);
}

CosineDecayRestarts::CosineDecayRestarts(const CosineDecayRestartsOptions& options) : options_(options) {
  require_steps("CosineDecayRestarts: first_decay_steps", options.first_decay_steps);
  if (!(options.t_mul > 0))
    throw Error(ErrorCode::kInvalidArgument, str("CosineDecayRestarts: t_mul is ", options.t_mul, "; it must be above 0"));
}

double CosineDecayRestarts::operator()(std::int64_t step) const {
  float part = single(step) / single(options_.first_decay_steps);
  const float t_mul = single(options_.t_mul);
  float restarts = std::floor(part);
  if (t_mul == 1.0F) {
    part -= restarts;
  } else {
    restarts = std::floor(std::log(1.0F - part * (1.0F - t_mul)) / std::log(t_mul));
    const float length = std::pow(t_mul, restarts);
    part = (part - (1.0F - length) / (1.0F - t_mul)) / length;
  }
  const float decayed = 0.5F * std::pow(single(options_.m_mul), restarts) * (1 + std::cos(kPi * part));
  const float alpha = single(options_.alpha);
  return single(options_.initial_learning_rate) * ((1 - alpha) * decayed + alpha);
}

PiecewiseConstantDecay::PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options) : options_(options) {
  if (options.boundaries.empty() || options.values.size() != options.boundaries.size() + 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("PiecewiseConstantDecay: ", options.boundaries.size(), " boundaries and ", options.values.size(),
                    " values; there must be at least one boundary, and one value more than boundaries"));
  if (!std::ranges::is_sorted(options.boundaries))
    throw Error(ErrorCode::kInvalidArgument, str("PiecewiseConstantDecay: the boundaries are ", join(", ", options.boundaries),
                                                 "; they must be in ascending order"));
}

double PiecewiseConstantDecay::operator()(std::int64_t step) const {
  const auto first = std::ranges::lower_bound(options_.boundaries, step);  // the first boundary that is not before the step
  return options_.values[static_cast<std::size_t>(first - options_.boundaries.begin())];
}

WarmUp::WarmUp(const WarmUpOptions& options) : options_(options) { require_steps("warm_up: steps", options.steps); }

double WarmUp::operator()(std::int64_t step) const {
  const double full = options_.rate.at(step);
  return step >= options_.steps ? full : full * static_cast<double>(step + 1) / static_cast<double>(options_.steps);
}

}  // namespace schedules
}  // namespace lockstep
