#pragma once

#include <cstdint>

namespace lockstep::internal {

// The factor of float16's loss: doubled after so many steps without an overflow, halved by one.
class LossScale {
 public:
  explicit LossScale(bool is_on) : value_(is_on ? 65536.0 : 1.0), is_on_(is_on) {}

  bool is_on() const noexcept { return is_on_; }
  double value() const noexcept { return value_; }
  std::int64_t good_steps() const noexcept { return good_steps_; }
  // Of a training that goes on; nothing where this one has none.
  void set(double value, std::int64_t good_steps) noexcept {
    if (!is_on_) return;
    value_ = value;
    good_steps_ = good_steps;
  }

  // After a step, once for all replicas: whether its gradients were finite.
  void note(bool is_finite) noexcept {
    if (!is_on_) return;
    if (!is_finite) {
      value_ = value_ > 1 ? value_ / 2 : 1;
      good_steps_ = 0;
    } else if (++good_steps_ == kPeriod) {
      value_ *= 2;
      good_steps_ = 0;
    }
  }

 private:
  static constexpr std::int64_t kPeriod = 2000;

  double value_;
  bool is_on_;
  std::int64_t good_steps_ = 0;
};

}  // namespace lockstep::internal
