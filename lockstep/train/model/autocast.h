#pragma once

#include <c10/core/Device.h>

#include "lockstep/train/model/compile_options.h"

namespace lockstep::internal {

// While it lives, LibTorch's operations on this thread and on that kind of device run in the precision where it is worth it.
class AutocastScope {
 public:
  AutocastScope(Precision precision, c10::DeviceType device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool is_on_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  c10::ScalarType dtype_before_ = c10::ScalarType::Undefined;
};

}  // namespace lockstep::internal
