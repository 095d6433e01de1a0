#include "lockstep/device/max_pool.h"

#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

// Random numbers; few different ones, so that many are equal; NaN and infinities.
enum class Kind { kRandom, kEqual, kOdd };

torch::Tensor numbers(Kind kind, const std::vector<std::int64_t>& sizes, torch::Dtype dtype) {
  if (kind == Kind::kEqual) return torch::randint(0, 3, sizes).to(dtype);
  auto x = torch::randn(sizes, dtype);
  if (kind == Kind::kRandom) return x;
  x.masked_fill_(torch::rand(sizes) < 0.1, std::nan(""));
  x.masked_fill_(torch::rand(sizes) < 0.3, -INFINITY);
  return x.masked_fill_(torch::rand(sizes) < 0.1, INFINITY);
}

bool are_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && torch::logical_or(a == b, torch::logical_and(a.isnan(), b.isnan())).all().item<bool>();
}

void expect_libtorchs(const torch::Tensor& x, std::vector<std::int64_t> window, std::vector<std::int64_t> step) {
  const auto [values, places] = torch::max_pool2d_with_indices(x, window, step);
  const auto [their_values, their_places] = at::cpu::max_pool2d_with_indices(x, window, step);
  EXPECT_TRUE(are_same(values, their_values)) << x.sizes() << " " << window << " " << step;
  EXPECT_TRUE(places.equal(their_places)) << x.sizes() << " " << window << " " << step;
}

TEST(MaxPool, GivesLibTorchsValuesAndPlaces) {
  use_own_max_pool();
  torch::manual_seed(1);
  for (const auto dtype : {torch::kFloat, torch::kDouble})
    for (const auto kind : {Kind::kRandom, Kind::kEqual, Kind::kOdd})
      for (const std::int64_t rows : {1, 2, 3, 5, 9, 26})
        for (const std::int64_t columns : {1, 2, 7, 16, 26, 33})
          for (const std::int64_t window : {1, 2, 3})
            for (const std::int64_t step : {1, 2, 3}) {
              if (window > rows || window > columns) continue;
              expect_libtorchs(numbers(kind, {2, 3, rows, columns}, dtype), {window, window}, {step, step});
              expect_libtorchs(numbers(kind, {rows, rows, columns}, dtype), {1, window}, {3, step});
              expect_libtorchs(numbers(kind, {2, rows, columns}, dtype), {window}, {});
            }
}

// What it does not do itself, LibTorch does: paddings, dilations, other orders in memory, other types, nothing at all.
TEST(MaxPool, LeavesTheRestToLibTorch) {
  use_own_max_pool();
  const auto x = torch::randn({2, 4, 9, 11});
  const auto same = [](const torch::Tensor& given, std::int64_t padding, std::int64_t dilation, bool rounds_up) {
    const auto [values, places] = torch::max_pool2d_with_indices(given, 2, 2, padding, dilation, rounds_up);
    const auto [theirs, their_places] = at::cpu::max_pool2d_with_indices(given, 2, 2, padding, dilation, rounds_up);
    return are_same(values, theirs) && places.equal(their_places) && values.strides() == theirs.strides();
  };
  EXPECT_TRUE(same(x, 1, 1, false));
  EXPECT_TRUE(same(x, 0, 2, false));
  EXPECT_TRUE(same(x, 0, 1, true));
  EXPECT_TRUE(same(x.contiguous(at::MemoryFormat::ChannelsLast), 0, 1, false));
  EXPECT_TRUE(same(x.transpose(2, 3), 0, 1, false));
  EXPECT_TRUE(same(x.to(torch::kBFloat16), 0, 1, false));
  EXPECT_TRUE(same(torch::empty({0, 4, 9, 11}), 0, 1, false));
  EXPECT_THROW(torch::max_pool2d(torch::randn({1, 1, 2, 2}), 3), c10::Error);
  EXPECT_THROW(torch::max_pool2d(x, 2, 0), c10::Error);
}

TEST(MaxPool, GradientsAreLibTorchs) {
  const auto x = torch::randint(0, 3, {2, 3, 12, 17}).to(torch::kFloat);
  const auto gradient = [&] {
    const auto mine = x.clone().requires_grad_();
    (torch::max_pool2d(mine, 3, 2) * torch::arange(8).to(torch::kFloat)).sum().backward();
    return mine.grad();
  };
  use_own_max_pool();
  const auto ours = gradient();
  // A copy in another order is pooled by LibTorch.
  const auto other = x.clone().requires_grad_();
  (torch::max_pool2d(other.transpose(2, 3), 3, 2).transpose(2, 3) * torch::arange(8).to(torch::kFloat)).sum().backward();
  EXPECT_EQ(ours.sum().item<float>(), other.grad().sum().item<float>());
  const auto [values, places] = at::cpu::max_pool2d_with_indices(x, 3, 2);
  auto wanted = torch::zeros({2, 3, 12 * 17});
  wanted.scatter_add_(2, places.flatten(2), torch::arange(8).to(torch::kFloat).expand(values.sizes()).flatten(2));
  EXPECT_TRUE(ours.equal(wanted.view_as(x)));
}

}  // namespace
}  // namespace lockstep
