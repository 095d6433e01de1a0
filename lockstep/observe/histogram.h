#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// How values are distributed, in TensorBoard's buckets. Bucket k holds the values from the limit before it, included, to its
// own, excluded.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;  // of finite values
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits = {};  // upward
  std::vector<double> counts = {};
  std::int64_t not_finite = 0;  // left out
};

// Runs of empty buckets are one.
Histogram histogram_of(std::span<const float> values);
Histogram histogram_of(std::span<const double> values);

}  // namespace lockstep
