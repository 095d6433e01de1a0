#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "lockstep/split/rules.h"

// Note [halos]
// Where a dimension that windows slide over is cut, its outputs are cut in as many parts. A part needs the inputs of its first
// to its last window: those of its own tile, and some of its neighbours', the halo. They are fetched, what lies outside of the
// tensor is filled in, and the part is computed without padding. Gradients of a halo go back to the tile that it was fetched
// from.

namespace lockstep::split {
namespace {

// How windows slide over one dimension.
struct Window {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::int64_t before = 0;  // padding
  std::int64_t after = 0;
  std::int64_t dilation = 1;

  std::int64_t extent() const noexcept { return dilation * (size - 1) + 1; }
  std::int64_t outputs(std::int64_t inputs) const noexcept { return (inputs + before + after - extent()) / stride + 1; }
  // The inputs of those outputs; some may lie outside.
  Range inputs_of(const Range& outputs) const noexcept {
    return {outputs.begin * stride - before, (outputs.end - 1) * stride - before + extent()};
  }
};

// Element d of what LibTorch takes as one number, or as one a dimension; `otherwise` where there is none.
std::int64_t nth(const std::vector<std::int64_t>& values, std::size_t d, std::int64_t otherwise) {
  return values.empty() ? otherwise : values[values.size() == 1 ? 0 : d];
}

bool has_one_or(std::size_t count, const std::vector<std::int64_t>& values) {
  return values.size() == 1 || values.size() == count;
}

// Windows over the last dimensions of `input`.
struct Windows {
  const SplitValue& input;
  std::size_t first = 0;  // the first dimension that they slide over
  std::vector<Window> windows = {};

  // The input's tiling with the outputs' sizes; none where there are fewer outputs than parts, or windows that see nothing.
  std::optional<Tiling> outputs() const {
    auto tiling = input.tiling;
    for (std::size_t d = 0; d < windows.size(); ++d) {
      const auto size = tiling.cuts(first + d).back();
      const auto count = tiling.count(first + d);
      if (windows[d].stride < 1 || windows[d].size < 1 || windows[d].dilation < 1 || windows[d].before < 0) return std::nullopt;
      if (size + windows[d].before + windows[d].after < windows[d].extent()) return std::nullopt;
      const auto outputs = windows[d].outputs(size);
      if (outputs < count) return std::nullopt;
      auto cuts = even_cuts(outputs, count);
      for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
        const auto inputs = windows[d].inputs_of({cuts[part], cuts[part + 1]});
        if (inputs.end <= 0 || inputs.begin >= size) return std::nullopt;
      }
      tiling = tiling.with(first + d, std::move(cuts));
    }
    return tiling;
  }

  // What the windows of that part of the outputs see, with `fill` where it lies outside. `region`: of the other dimensions.
  at::Tensor inputs(const at::Tensor& tensor, Region region, int device, double fill) const {
    std::vector<std::int64_t> padding;  // of the last dimension first
    for (std::size_t d = 0; d < windows.size(); ++d) {
      const auto size = input.tiling.cuts(first + d).back();
      const auto seen = windows[d].inputs_of(region[first + d]);
      region[first + d] = {std::max<std::int64_t>(seen.begin, 0), std::min(seen.end, size)};
      padding.insert(padding.begin(), {region[first + d].begin - seen.begin, seen.end - region[first + d].end});
    }
    const auto part = fetch(tensor, region, *input.home, device);
    const bool is_inside = std::ranges::all_of(padding, [](auto count) { return count == 0; });
    return is_inside ? part : at::constant_pad_nd(part, padding, fill);
  }
};

std::size_t dimensions_in(const std::string& name) { return static_cast<std::size_t>(name[name.size() - 2] - '0'); }

at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Call& call) {
  const std::vector<std::int64_t> none(static_cast<std::size_t>(weight.dim() - 2), 0);
  const auto groups = call.integer(6);
  const auto stride = call.ints(3);
  const auto dilation = call.ints(5);
  if (weight.dim() == 3) return at::conv1d(x, weight, bias, stride, none, dilation, groups);
  if (weight.dim() == 4) return at::conv2d(x, weight, bias, stride, none, dilation, groups);
  return at::conv3d(x, weight, bias, stride, none, dilation, groups);
}

// False: in a way that we do not know.
bool read_padding(const Call& call, std::vector<Window>& windows) {
  if (!call.arg(4).isString()) {
    for (std::size_t d = 0; d < windows.size(); ++d) windows[d].before = windows[d].after = nth(call.ints(4), d, 0);
    return true;
  }
  const auto& how = call.arg(4).toStringRef();
  if (how != "same" && how != "valid") return false;
  for (auto& window : windows) {
    if (how == "same" && window.stride != 1) return false;
    const auto all = how == "same" ? window.extent() - 1 : 0;
    window.before = all / 2;
    window.after = all - all / 2;
  }
  return true;
}

}  // namespace

void convolve(Call& call) {
  const auto x = call.tensor(0);
  const auto weight = call.tensor(1);
  const auto bias = call.tensor(2);
  const auto* const value = call.value(0);
  const auto over = dimensions_in(call.name());
  const auto dims = static_cast<std::size_t>(x.dim());
  if (value == nullptr || value->is_replicated || dims < over + 1 || dims > over + 2) return;
  if (weight.dim() != static_cast<std::int64_t>(over) + 2) return;
  if (!has_one_or(over, call.ints(3)) || !has_one_or(over, call.ints(5))) return;
  if (!call.arg(4).isString() && !has_one_or(over, call.ints(4))) return;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) return;
  Windows windows{*value, dims - over, std::vector<Window>(over)};
  for (std::size_t d = 0; d < over; ++d) {
    windows.windows[d].size = weight.size(static_cast<std::int64_t>(d) + 2);
    windows.windows[d].stride = nth(call.ints(3), d, 1);
    windows.windows[d].dilation = nth(call.ints(5), d, 1);
  }
  const auto channels = dims - over - 1;
  const auto groups = call.integer(6);
  if (!read_padding(call, windows.windows) || x.size(static_cast<std::int64_t>(channels)) != weight.size(1) * groups) return;
  const auto parts = value->tiling.count(channels);
  if (parts > 1 && (groups != 1 || weight.size(0) < parts)) return;
  auto tiling = windows.outputs();
  if (!tiling) return;
  // Each part has all channels of the input, and where they are cut some of the output's.
  tiling = tiling->with(channels, even_cuts(weight.size(0), parts));
  SplitValue result{value->home, false, false, *tiling, {}, value->devices};
  for (std::size_t k = 0; k < tiling->tiles(); ++k) {
    auto region = tiling->tile(k);
    auto its = whole_region(weight.sizes().vec());
    its[0] = region[channels];
    region[channels] = {0, x.size(static_cast<std::int64_t>(channels))};
    const auto device = value->devices[k];
    const auto its_bias = bias.defined() ? fetch(bias, {its[0]}, *value->home, device) : bias;
    result.parts.push_back(
        convolved(windows.inputs(x, region, device, 0), fetch(weight, its, *value->home, device), its_bias, call));
  }
  call.give(make_tensor(std::move(result)));
}

void pool(Call& call) {
  const auto x = call.tensor(0);
  const auto* const value = call.value(0);
  const bool is_max = call.name().starts_with("aten::max");
  const auto over = dimensions_in(call.name());
  const auto dims = static_cast<std::size_t>(x.dim());
  if (value == nullptr || value->is_replicated || dims < over + 1 || !x.is_floating_point()) return;
  Windows windows{*value, dims - over, std::vector<Window>(over)};
  const auto sizes = call.ints(1);
  const auto paddings = call.ints(3);
  if (call.flag(is_max ? 5 : 4)) return;  // ceil_mode
  if (!has_one_or(over, sizes) || !has_one_or(over, paddings) || (is_max && !has_one_or(over, call.ints(4)))) return;
  if (!call.ints(2).empty() && !has_one_or(over, call.ints(2))) return;
  for (std::size_t d = 0; d < over; ++d) {
    auto& window = windows.windows[d];
    window.size = nth(sizes, d, 1);
    window.stride = nth(call.ints(2), d, window.size);
    window.before = window.after = nth(paddings, d, 0);
    window.dilation = is_max ? nth(call.ints(4), d, 1) : 1;
    if (window.before * 2 > window.size || (!is_max && window.before > 0 && !call.flag(5))) return;
  }
  const auto tiling = windows.outputs();
  if (!tiling) return;
  const auto fill = is_max ? -std::numeric_limits<double>::infinity() : 0.0;
  SplitValue result{value->home, false, false, *tiling, {}, value->devices};
  for (std::size_t k = 0; k < tiling->tiles(); ++k) {
    auto args = call.args();
    args[0] = windows.inputs(x, tiling->tile(k), value->devices[k], fill);
    args[3] = std::vector<std::int64_t>(over, 0);
    result.parts.push_back(call.call_one(std::move(args)));
  }
  call.give(make_tensor(std::move(result)));
}

}  // namespace lockstep::split
