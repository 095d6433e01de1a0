#include "lockstep/split/sums.h"

#include <ATen/ATen.h>

namespace lockstep::split {
namespace {

at::Tensor tree_sum(std::vector<at::Tensor> parts) {
  while (parts.size() > 1) {
    std::vector<at::Tensor> next;
    for (std::size_t k = 0; k < parts.size(); k += 2)
      next.push_back(k + 1 < parts.size() ? at::add(parts[k], moved(parts[k + 1], parts[k].device())) : parts[k]);
    parts = std::move(next);
  }
  return parts[0];
}

}  // namespace

SplitValue sums_of_tiles(const SplitValue& value, const std::vector<std::int64_t>& dims,
                         const std::function<at::Tensor(std::size_t k)>& part) {
  auto grid = value.tiling;
  for (const auto d : dims) grid = grid.without_cuts(static_cast<std::size_t>(d), 1);
  std::vector<std::vector<at::Tensor>> groups(grid.tiles());
  SplitValue sums{value.home, false, false, {}, {}, std::vector<int>(grid.tiles())};
  for (std::size_t k = 0; k < value.parts.size(); ++k) {
    auto position = value.tiling.position(k);
    for (const auto d : dims) position[static_cast<std::size_t>(d)] = 0;
    const auto group = grid.index(position);
    if (groups[group].empty()) sums.devices[group] = value.devices[k];
    groups[group].push_back(part(k));
  }
  for (auto& group : groups) sums.parts.push_back(tree_sum(std::move(group)));
  return sums;
}

}  // namespace lockstep::split
