#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <random>

#include "lockstep/split/split_tensor.h"

// Split tensors beside ordinary ones, for tests.

namespace lockstep::split::testing {

inline Home home_of(int devices) {
  LogicalDevices all;
  for (int k = 0; k < devices; ++k) {
    all.names.push_back("CPU:" + std::to_string(k));
    all.torch_devices.emplace_back(c10::kCPU);
  }
  return std::make_shared<const LogicalDevices>(std::move(all));
}

inline at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

inline std::int64_t product(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{1}, std::multiplies<>());
}

inline int parts_of(const at::Tensor& tensor) {
  const auto* const value = find_value(tensor);
  return value == nullptr ? 1 : static_cast<int>(value->parts.size());
}

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// fn of tensors of which the first is split, as fn of ordinary ones: the value, and the gradient of each with respect to a
// weighted sum of the result. Returns in how many parts the result was.
inline int expect_equal(const Function& fn, const std::vector<at::Tensor>& given, const std::vector<std::int64_t>& counts,
                        double tolerance = 1e-10) {
  const auto leaves = [&] {
    std::vector<at::Tensor> all;
    for (const auto& tensor : given) all.push_back(tensor.clone().detach().requires_grad_());
    return all;
  };
  const auto ours = leaves();
  const auto theirs = leaves();
  auto annotated = ours;
  annotated[0] = split_to(ours[0], home_of(static_cast<int>(product(counts))), counts);
  const auto got = fn(annotated);
  const auto expected = fn(theirs);
  EXPECT_EQ(got.sizes(), expected.sizes());
  EXPECT_EQ(got.scalar_type(), expected.scalar_type());
  const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, /*rtol=*/tolerance, /*atol=*/tolerance);
  };
  EXPECT_TRUE(near(whole(got), expected)) << "the value; largest difference "
                                          << (whole(got) - expected).abs().max().item<double>();
  if (!expected.requires_grad()) return parts_of(got);
  const auto weights = at::randn_like(expected);
  (got * weights).sum().backward();
  (expected * weights).sum().backward();
  for (std::size_t k = 0; k < given.size(); ++k) {
    EXPECT_EQ(ours[k].grad().defined(), theirs[k].grad().defined()) << "gradient " << k;
    if (theirs[k].grad().defined() && ours[k].grad().defined())
      EXPECT_TRUE(near(ours[k].grad(), theirs[k].grad()))
          << "gradient " << k << "; largest difference " << (ours[k].grad() - theirs[k].grad()).abs().max().item<double>();
  }
  return parts_of(got);
}

}  // namespace lockstep::split::testing
