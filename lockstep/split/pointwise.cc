#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include "lockstep/split/gradients.h"
#include "lockstep/split/rules.h"

namespace lockstep::split {
namespace {

struct Plan {
  std::vector<std::int64_t> sizes = {};  // of the result
  Tiling tiling = {};
  std::vector<int> devices = {};
  std::optional<std::size_t> leader = std::nullopt;  // whose tiles they are; none: all arguments are replicated or ordinary
};

// The argument's cuts as cuts of the result, whose last dimensions are the argument's.
Tiling aligned(const Tiling& tiling, const std::vector<std::int64_t>& sizes) {
  const auto offset = sizes.size() - tiling.dimensions();
  std::vector<std::vector<std::int64_t>> cuts;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool is_its = d >= offset && tiling.cuts(d - offset).back() == sizes[d];
    cuts.push_back(is_its ? tiling.cuts(d - offset) : std::vector<std::int64_t>{0, sizes[d]});
  }
  return Tiling::of_cuts(std::move(cuts));
}

Plan make_plan(const Call& call) {
  Plan plan;
  for (const auto index : call.tensors()) plan.sizes = at::infer_size(plan.sizes, call.tensor(index).sizes());
  for (const auto index : call.tensors()) {
    const auto* const value = call.value(index);
    if (value == nullptr || value->is_replicated) continue;
    const auto tiling = aligned(value->tiling, plan.sizes);
    if (plan.leader && tiling.tiles() <= plan.tiling.tiles()) continue;
    plan.leader = index;
    plan.tiling = tiling;
    plan.devices = value->devices;
  }
  return plan;
}

// What of an argument the region of the result needs.
Region needed(const at::Tensor& argument, const Region& region) {
  const auto offset = region.size() - static_cast<std::size_t>(argument.dim());
  Region its;
  for (std::int64_t d = 0; d < argument.dim(); ++d) {
    const auto& range = region[static_cast<std::size_t>(d) + offset];
    its.push_back(argument.size(d) == 1 ? Range{0, 1} : range);
  }
  return its;
}

at::Tensor do_part(const Call& call, const Region& region, int device) {
  auto args = call.args();
  for (const auto index : call.tensors()) {
    const auto argument = call.tensor(index);
    args[index] = fetch(argument, needed(argument, region), *call.home(), device);
  }
  return call.call_one(std::move(args));
}

}  // namespace

void pointwise(Call& call) {
  if (!call.gives_one_tensor() || call.home() == nullptr) return;
  const auto plan = make_plan(call);
  std::optional<std::size_t> written;
  for (const auto index : call.tensors())
    if (call.is_written(index)) written = index;
  if (written && *written != 0) return;  // out=
  if (written) {                         // its own parts are written to
    auto* const value = find_value(call.tensor(*written));
    if (value == nullptr || call.tensor(*written).sizes() != at::IntArrayRef(plan.sizes)) return;
    if (plan.leader && (value->is_replicated || value->tiling != plan.tiling || value->devices != plan.devices)) return;
  }
  SplitValue result{call.home(), !plan.leader, false, Tiling(plan.sizes), {}, {}};
  if (plan.leader) {
    result.tiling = plan.tiling;
    result.devices = plan.devices;
    for (std::size_t k = 0; k < plan.devices.size(); ++k)
      result.parts.push_back(do_part(call, plan.tiling.tile(k), plan.devices[k]));
  } else {
    for (int device = 0; device < call.home()->count(); ++device) {
      result.devices.push_back(device);
      result.parts.push_back(do_part(call, whole_region(plan.sizes), device));
    }
  }
  if (!written) return call.give(make_tensor(std::move(result)));
  auto& value = *find_value(call.tensor(*written));
  value.parts = std::move(result.parts);
  connect(call.tensor(*written), value);
  call.give(call.tensor(*written));
}

void convert(Call& call) {
  if (call.find("device") || call.find("other")) return;
  pointwise(call);
}

void never_shared(Call& call) { call.give(std::vector<c10::IValue>{false}); }

void same_cuts(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated || !call.gives_one_tensor() || call.is_written(0)) return;
  auto args = call.args();
  args[0] = whole(call.tensor(0));
  const auto result = call.call_one(std::move(args));
  if (result.sizes() != call.tensor(0).sizes()) return call.give(result);
  call.give(make_tensor(
      {value->home, false, false, value->tiling, cut(result, value->tiling, *value->home, value->devices), value->devices}));
}

}  // namespace lockstep::split
