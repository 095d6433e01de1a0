#pragma once

#include <chrono>
#include <utility>

#include "lockstep/base/deadline.h"

namespace lockstep {

// For a wait that says once, when it takes long, for whom: true the first time it is asked after `delay`.
class Reminder {
 public:
  explicit Reminder(std::chrono::nanoseconds delay) : due_(Deadline::after(delay)) {}

  bool is_due() { return due_.has_passed() && !std::exchange(is_over_, true); }

 private:
  Deadline due_;
  bool is_over_ = false;
};

}  // namespace lockstep
