#include "lockstep/ps/step_mean.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "lockstep/collective/tree_sum.h"

namespace lockstep::ps {
namespace {

using Kind = Operation::Kind;

// What all contributions have for one variable.
struct Parts {
  Operation operation;
  std::vector<at::Tensor> ids = {};
  std::vector<at::Tensor> values = {};
};

at::Tensor sum_of(std::vector<at::Tensor> values) {
  if (values.size() == 1) return values[0].clone();
  return tree_fold(std::move(values), [](const at::Tensor& a, const at::Tensor& b) { return at::add(a, b); });
}

GivenOperation merged(Parts parts, double contributions) {
  auto& operation = parts.operation;
  Given given;
  switch (operation.kind) {
    case Kind::kGradientRows:
      given.ids = at::cat(parts.ids);
      given.values = at::cat(parts.values).div_(contributions);
      operation.shape[0] = given.ids.numel();
      break;
    case Kind::kAssign:
      given.values = at::isFloatingType(parts.values[0].scalar_type())
                         ? sum_of(parts.values).div_(static_cast<double>(parts.values.size()))
                         : parts.values[0];
      break;
    default: given.values = sum_of(parts.values).div_(contributions);
  }
  operation.is_staged = false;
  operation.wants_value = false;
  return {std::move(operation), std::move(given)};
}

}  // namespace

std::vector<GivenOperation> mean_of(const std::vector<const std::vector<GivenOperation>*>& contributions) {
  std::vector<Parts> all;  // in the order in which they come
  std::map<std::pair<std::string, Kind>, std::size_t> places;
  for (const auto* const contribution : contributions)
    for (const auto& [operation, given] : *contribution) {
      const auto [place, is_new] = places.try_emplace({operation.name, operation.kind}, all.size());
      if (is_new) all.push_back({operation});
      auto& parts = all[place->second];
      if (operation.made_of && parts.operation.made_of)
        parts.operation.made_of = std::min(*parts.operation.made_of, *operation.made_of);
      if (given.ids.defined()) parts.ids.push_back(given.ids);
      parts.values.push_back(given.values);
    }
  std::vector<GivenOperation> result;
  for (auto& parts : all) result.push_back(merged(std::move(parts), static_cast<double>(contributions.size())));
  return result;
}

}  // namespace lockstep::ps
