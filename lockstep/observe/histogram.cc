#include "lockstep/observe/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr double kSmallest = 1e-12;
constexpr double kGrowth = 1.1;
constexpr double kLargest = 1e20;

// TensorFlow's: 0 and from 1e-12 to 1e20, each 1.1 times the last, below and above zero, and the largest number at each end.
const std::vector<double>& all_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> above;
    for (double limit = kSmallest; limit < kLargest; limit *= kGrowth) above.push_back(limit);
    above.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto it = above.rbegin(); it != above.rend(); ++it) all.push_back(-*it);
    all.push_back(0);
    all.insert(all.end(), above.begin(), above.end());
    return all;
  }();
  return limits;
}

// By the first bits of a positive number (exponent and four of the mantissa): the first limit above the smallest such number.
// The next one or two may be meant: limits grow by a tenth, such numbers by a sixteenth at most.
constexpr int kDropped = 48;
const std::vector<std::uint16_t>& first_limits() {
  static const std::vector<std::uint16_t> table = [] {
    const auto& limits = all_limits();
    std::vector<std::uint16_t> made(std::size_t{1} << (63 - kDropped));
    for (std::size_t bits = 0; bits < made.size(); ++bits) {
      const auto smallest = std::bit_cast<double>(static_cast<std::uint64_t>(bits) << kDropped);
      const auto at = std::ranges::upper_bound(limits, smallest) - limits.begin();
      made[bits] = static_cast<std::uint16_t>(std::min<std::ptrdiff_t>(at, static_cast<std::ptrdiff_t>(limits.size()) - 1));
    }
    return made;
  }();
  return table;
}

// The bucket of a finite value: the first limit above it; the last of all for what is above that.
std::size_t bucket_of(double value, const std::vector<double>& limits, const std::vector<std::uint16_t>& first) {
  const double size = std::abs(value);
  const auto last = limits.size() - 1;
  std::size_t above = first[std::bit_cast<std::uint64_t>(size) >> kDropped];
  while (above < last && limits[above] <= size) ++above;
  if (value >= 0) return above;
  // The limits are symmetric: the first above -size is opposite the last below size.
  const auto below = limits[above - 1] < size ? above - 1 : above - 2;
  return last - below;
}

template <typename T>
Histogram make(std::span<const T> values) {
  const auto& limits = all_limits();
  const auto& first = first_limits();
  std::vector<double> counts(limits.size());
  Histogram made;
  made.min = std::numeric_limits<double>::max();
  made.max = std::numeric_limits<double>::lowest();
  for (const T one : values) {
    const auto value = static_cast<double>(one);
    if (!std::isfinite(value)) {
      ++made.not_finite;
      continue;
    }
    made.min = std::min(made.min, value);
    made.max = std::max(made.max, value);
    made.count += 1;
    made.sum += value;
    made.sum_squares += value * value;
    counts[bucket_of(value, limits, first)] += 1;
  }
  if (made.count == 0) made.min = made.max = 0;
  for (std::size_t k = 0; k < limits.size(); ++k) {
    const bool is_last_of_run = k + 1 == limits.size() || counts[k + 1] > 0;
    if (counts[k] == 0 && !is_last_of_run) continue;
    made.limits.push_back(limits[k]);
    made.counts.push_back(counts[k]);
  }
  return made;
}

}  // namespace

Histogram histogram_of(std::span<const float> values) { return make(values); }
Histogram histogram_of(std::span<const double> values) { return make(values); }

}  // namespace lockstep
