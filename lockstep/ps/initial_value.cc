#include "lockstep/ps/initial_value.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "lockstep/base/mix.h"

namespace lockstep::ps {
namespace {

// Numbers are drawn in float64 for float64 variables, otherwise in float32.
template <typename Real>
constexpr int kBits = std::numeric_limits<Real>::digits;

// In [0, 1).
template <typename Real>
Real part_of_one(std::uint64_t bits) {
  return static_cast<Real>(bits >> (64 - kBits<Real>)) * std::ldexp(Real{1}, -kBits<Real>);
}

template <typename Real, typename T>
void fill_uniform(T* row, std::int64_t count, std::uint64_t key, const Initial& initial) {
  const auto least = static_cast<Real>(initial.first);
  const auto width = static_cast<Real>(initial.second - initial.first);
  for (std::int64_t i = 0; i < count; ++i)
    row[i] = static_cast<T>(least + width * part_of_one<Real>(mix(key, static_cast<std::uint64_t>(i))));
}

// Two at a time, by Box and Muller.
template <typename Real, typename T>
void fill_normal(T* row, std::int64_t count, std::uint64_t key, const Initial& initial) {
  const auto mean = static_cast<Real>(initial.first);
  const auto deviation = static_cast<Real>(initial.second);
  for (std::int64_t i = 0; i < count; i += 2) {
    const Real u = 1 - part_of_one<Real>(mix(key, static_cast<std::uint64_t>(i)));  // in (0, 1]
    const Real angle = 2 * std::numbers::pi_v<Real> * part_of_one<Real>(mix(key, static_cast<std::uint64_t>(i + 1)));
    const Real size = deviation * std::sqrt(-2 * std::log(u));
    row[i] = static_cast<T>(mean + size * std::cos(angle));
    if (i + 1 < count) row[i + 1] = static_cast<T>(mean + size * std::sin(angle));
  }
}

template <typename T>
void fill_rows(T* values, std::int64_t rows, std::int64_t width, const Description& description) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto& initial = description.initial;
  const auto fill_part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto key = mix(initial.seed, static_cast<std::uint64_t>(description.first_row + row));
      if (initial.kind == Initial::Kind::kUniform) fill_uniform<Real>(values + row * width, width, key, initial);
      else fill_normal<Real>(values + row * width, width, key, initial);
    }
  };
  at::parallel_for(0, rows, std::max<std::int64_t>(1, 16'384 / std::max<std::int64_t>(width, 1)), fill_part);
}

}  // namespace

void fill_initial(at::Tensor& value, const Description& description) {
  if (description.initial.kind == Initial::Kind::kZeros) {
    if (value.nbytes() > 0) std::memset(value.data_ptr(), 0, value.nbytes());
    return;
  }
  const auto rows = value.dim() == 0 ? 1 : value.size(0);
  if (value.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, value.scalar_type(), "fill_initial",
                                  [&] { fill_rows(value.data_ptr<scalar_t>(), rows, value.numel() / rows, description); });
}

}  // namespace lockstep::ps
