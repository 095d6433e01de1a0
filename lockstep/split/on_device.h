#pragma once

#include "lockstep/split/logical_devices.h"

namespace lockstep::split {

// While it lives, what the calling thread computes of tensors that are not split is done on a logical device, and stays there.
// Objects are destroyed in reverse order, on the thread that made them.
class [[nodiscard]] OnDevice {
 public:
  OnDevice(Home home, int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // The innermost one of the calling thread; null: there is none.
  static const OnDevice* current() noexcept;
  const Home& home() const noexcept { return home_; }
  int device() const noexcept { return device_; }

 private:
  const OnDevice* const previous_;
  const bool was_included_;
  const Home home_;
  const int device_;
};

}  // namespace lockstep::split
