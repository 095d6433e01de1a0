#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "lockstep/split/rules.h"

namespace lockstep::split {
namespace {

// A channel's numbers, shaped so that they are broadcast over the other dimensions of x.
at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = numbers.size(0);
  return numbers.reshape(sizes);
}

// What a batch norm takes, by LibTorch's positions.
struct BatchNorm {
  at::Tensor x, weight, bias, running_mean, running_var;
  bool is_training = false;
  double momentum = 0;
  double eps = 0;
};

void keep_running(const BatchNorm& norm, const at::Tensor& mean, const at::Tensor& variance) {
  const c10::NoGradGuard no_grad;
  const auto count = norm.x.numel() / norm.x.size(1);
  const auto note = [&](at::Tensor running, const at::Tensor& value) {
    if (running.defined())
      running.mul_(1 - norm.momentum).add_(value.detach().flatten().to(running.scalar_type()), norm.momentum);
  };
  note(norm.running_mean, mean);
  note(norm.running_var, variance * (static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(count - 1, 1))));
}

at::Tensor normalized(const BatchNorm& norm) {
  auto mean = norm.running_mean;
  auto variance = norm.running_var;
  if (norm.is_training) {
    std::vector<std::int64_t> dims;
    for (std::int64_t d = 0; d < norm.x.dim(); ++d)
      if (d != 1) dims.push_back(d);
    mean = whole(at::mean(norm.x, dims));
    variance = whole(at::mean(at::square(norm.x - by_channel(mean, norm.x)), dims));
    keep_running(norm, mean, variance);
  }
  auto scale = at::rsqrt(variance + norm.eps);
  if (norm.weight.defined()) scale = scale * whole(norm.weight);
  const auto result = (norm.x - by_channel(mean, norm.x)) * by_channel(scale, norm.x);
  return norm.bias.defined() ? result + by_channel(whole(norm.bias), norm.x) : result;
}

}  // namespace

void batch_norm(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated) return;
  const BatchNorm norm{call.tensor(0), call.tensor(1), call.tensor(2),         call.tensor(3),
                       call.tensor(4), call.flag(5),   call.arg(6).toDouble(), call.arg(7).toDouble()};
  const auto& x = norm.x;
  const bool is_precise = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  if (x.dim() < 2 || value->tiling.is_cut(1) || !is_precise || x.numel() == 0) return;
  if (norm.is_training ? x.numel() / x.size(1) < 2 : !norm.running_mean.defined() || !norm.running_var.defined()) return;
  for (const auto& numbers : {norm.weight, norm.bias, norm.running_mean, norm.running_var})
    if (numbers.defined() && (numbers.numel() != x.size(1) || numbers.scalar_type() != x.scalar_type())) return;
  call.give(normalized(norm));
}

void layer_norm(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated) return;
  const auto shape = call.ints(1);
  const auto dims = value->tiling.dimensions();
  if (shape.size() > dims) return;
  for (auto d = dims - shape.size(); d < dims; ++d)
    if (value->tiling.is_cut(d)) return;
  SplitValue result{value->home, false, false, value->tiling, {}, value->devices};
  for (std::size_t k = 0; k < value->parts.size(); ++k) {
    auto args = call.args();
    args[0] = value->parts[k];
    for (const std::size_t index : {2, 3})
      if (const auto numbers = call.tensor(index); numbers.defined())
        args[index] = fetch(numbers, whole_region(numbers.sizes().vec()), *value->home, value->devices[k]);
    result.parts.push_back(call.call_one(std::move(args)));
  }
  call.give(make_tensor(std::move(result)));
}

}  // namespace lockstep::split
