#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace lockstep {

// The learning rate of an optimizer: a number, or a schedule that gives one for every step. A value.
//
//   ls::SGD({.learning_rate = 0.1});
//   ls::SGD({.learning_rate = ls::schedules::CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 1000})});
//   ls::SGD({.learning_rate = [](std::int64_t step) { return 0.1 / (1 + step); }});
class LearningRate {
 public:
  using Schedule = std::function<double(std::int64_t step)>;

  // Throws kInvalidArgument for a number that is negative or not finite.
  LearningRate(double rate);  // NOLINT: a number is a learning rate

  template <typename F>
  requires(!std::is_arithmetic_v<std::decay_t<F>> && !std::same_as<std::decay_t<F>, LearningRate> &&
           std::is_invocable_r_v<double, const std::decay_t<F>&, std::int64_t>)
      LearningRate(F&& schedule)  // NOLINT: so is a schedule
      : LearningRate(Schedule(std::forward<F>(schedule)), 0) {}

  bool is_schedule() const noexcept { return schedule_ != nullptr; }
  // The schedule, when it is an S; null otherwise.
  template <typename S>
  const S* schedule_as() const noexcept {
    return schedule_.template target<S>();
  }

  // The rate of the update after `step` updates, the first being step 0. Throws what the schedule throws, and
  // kInvalidArgument when it gives a negative number or one that is not finite.
  double at(std::int64_t step) const;

 private:
  LearningRate(Schedule schedule, int);

  double rate_ = 0;
  Schedule schedule_;  // null: the number
};

}  // namespace lockstep
