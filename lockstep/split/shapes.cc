#include <ATen/ATen.h>
#include <ATen/InferSize.h>

#include <numeric>

#include "lockstep/split/rules.h"

namespace lockstep::split {
namespace {

// Dimension k of the result is dimension order[k].
std::optional<std::vector<std::int64_t>> order_of(const Call& call) {
  const auto dims = call.tensor(0).dim();
  std::vector<std::int64_t> order(static_cast<std::size_t>(dims));
  std::iota(order.begin(), order.end(), 0);
  if (call.name() == "aten::t") {
    std::reverse(order.begin(), order.end());
    return dims <= 2 ? std::optional(order) : std::nullopt;
  }
  const auto valid = [&](std::int64_t d) { return d >= -dims && d < dims; };
  const auto positive = [&](std::int64_t d) { return static_cast<std::size_t>(d < 0 ? d + dims : d); };
  if (call.name() == "aten::transpose") {
    if (!call.arg(1).isInt() || !valid(call.integer(1)) || !valid(call.integer(2))) return std::nullopt;
    std::swap(order[positive(call.integer(1))], order[positive(call.integer(2))]);
    return order;
  }
  const auto named = call.ints(1);
  if (named.size() != order.size()) return std::nullopt;
  std::vector<bool> is_there(order.size());
  for (std::size_t k = 0; k < named.size(); ++k) {
    if (!valid(named[k]) || is_there[positive(named[k])]) return std::nullopt;
    is_there[positive(named[k])] = true;
    order[k] = static_cast<std::int64_t>(positive(named[k]));
  }
  return order;
}

// The sizes that the result shall have.
std::optional<std::vector<std::int64_t>> target_of(const Call& call) {
  const auto x = call.tensor(0);
  if (call.name() != "aten::flatten") {
    if (!call.arg(1).isIntList()) return std::nullopt;  // another dtype
    return at::infer_size(call.ints(1), x.numel());
  }
  if (!call.arg(1).isInt() || !call.arg(2).isInt() || x.dim() == 0) return std::nullopt;
  const auto first = call.integer(1) < 0 ? call.integer(1) + x.dim() : call.integer(1);
  const auto last = call.integer(2) < 0 ? call.integer(2) + x.dim() : call.integer(2);
  if (first < 0 || last < first || last >= x.dim()) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d <= first || d > last) sizes.push_back(x.size(d));
    else sizes.back() *= x.size(d);
  }
  return sizes;
}

}  // namespace

void permute(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated || call.tensors().size() != 1) return;
  const auto order = order_of(call);
  if (!order) return;
  std::vector<std::vector<std::int64_t>> cuts;
  for (const auto d : *order) cuts.push_back(value->tiling.cuts(static_cast<std::size_t>(d)));
  SplitValue result{value->home, false, false, Tiling::of_cuts(std::move(cuts)), {}, {}};
  for (std::size_t k = 0; k < result.tiling.tiles(); ++k) {
    const auto position = result.tiling.position(k);
    std::vector<std::int64_t> before(position.size());
    for (std::size_t d = 0; d < position.size(); ++d) before[static_cast<std::size_t>((*order)[d])] = position[d];
    const auto index = value->tiling.index(before);
    result.parts.push_back(value->parts[index].permute(*order));
    result.devices.push_back(value->devices[index]);
  }
  call.give(make_tensor(std::move(result)));
}

// Where the dimensions up to the last that is cut stay as they are.
void reshape(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated || call.tensors().size() != 1) return;
  const auto target = target_of(call);
  if (!target) return;
  std::size_t kept = 0;
  for (std::size_t d = 0; d < value->tiling.dimensions(); ++d)
    if (value->tiling.is_cut(d)) kept = d + 1;
  if (target->size() < kept) return;
  std::vector<std::vector<std::int64_t>> cuts;
  for (std::size_t d = 0; d < target->size(); ++d) {
    if (d >= kept) cuts.push_back({0, (*target)[d]});
    else if (value->tiling.cuts(d).back() != (*target)[d]) return;
    else cuts.push_back(value->tiling.cuts(d));
  }
  SplitValue result{value->home, false, false, Tiling::of_cuts(std::move(cuts)), {}, value->devices};
  for (std::size_t k = 0; k < result.tiling.tiles(); ++k) {
    std::vector<std::int64_t> sizes;
    for (const auto& range : result.tiling.tile(k)) sizes.push_back(range.size());
    result.parts.push_back(value->parts[k].reshape(sizes));
  }
  call.give(make_tensor(std::move(result)));
}

}  // namespace lockstep::split
