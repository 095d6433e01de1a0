#include "lockstep/train/model/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

// LibTorch 1.13 has functions for each kind of device, later ones take it as an argument. What a version lacks is found here;
// outside all namespaces, so that it is looked for beside at::autocast's and not before it.
namespace lockstep_missing {
struct Missing {};
[[maybe_unused]] Missing set_autocast_enabled(...);
[[maybe_unused]] Missing set_autocast_dtype(...);
[[maybe_unused]] Missing is_autocast_enabled(...);
[[maybe_unused]] Missing get_autocast_dtype(...);
}  // namespace lockstep_missing

namespace lockstep::internal {
namespace lookup {
using namespace at::autocast;      // NOLINT: an overload set of both is the point
using namespace lockstep_missing;  // NOLINT

template <typename Type>
void set_enabled_on(Type type, bool on) {
  if constexpr (!std::is_same_v<decltype(set_autocast_enabled(type, on)), Missing>) set_autocast_enabled(type, on);
  else if (type == c10::kCPU) set_cpu_enabled(on);
  else set_enabled(on);
}

template <typename Type>
void set_dtype_on(Type type, at::ScalarType dtype) {
  if constexpr (!std::is_same_v<decltype(set_autocast_dtype(type, dtype)), Missing>) set_autocast_dtype(type, dtype);
  else if (type == c10::kCPU) set_autocast_cpu_dtype(dtype);
  else set_autocast_gpu_dtype(dtype);
}

template <typename Type>
bool is_enabled_on(Type type) {
  if constexpr (!std::is_same_v<decltype(is_autocast_enabled(type)), Missing>) return is_autocast_enabled(type);
  else return type == c10::kCPU ? is_cpu_enabled() : is_enabled();
}

template <typename Type>
at::ScalarType dtype_on(Type type) {
  if constexpr (!std::is_same_v<decltype(get_autocast_dtype(type)), Missing>) return get_autocast_dtype(type);
  else return type == c10::kCPU ? get_autocast_cpu_dtype() : get_autocast_gpu_dtype();
}

}  // namespace lookup

AutocastScope::AutocastScope(Precision precision, c10::DeviceType device)
    : is_on_(precision != Precision::kFloat32), device_(device) {
  if (!is_on_) return;
  was_enabled_ = lookup::is_enabled_on(device_);
  dtype_before_ = lookup::dtype_on(device_);
  lookup::set_dtype_on(device_, precision == Precision::kBFloat16 ? at::kBFloat16 : at::kHalf);
  lookup::set_enabled_on(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!is_on_) return;
  // The converted weights that LibTorch keeps are those of this step.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  lookup::set_enabled_on(device_, was_enabled_);
  lookup::set_dtype_on(device_, dtype_before_);
}

}  // namespace lockstep::internal
