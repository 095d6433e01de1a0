#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/split/rules.h"
#include "lockstep/split/sums.h"

namespace lockstep::split {
namespace {

// The dimensions that an argument names, sorted; without any: all, where `is_all`.
std::optional<std::vector<std::int64_t>> dimensions_of(const Call& call, std::int64_t dimensions) {
  std::vector<std::int64_t> named;
  if (const auto at = call.find("dim")) {
    const auto& arg = call.arg(*at);
    if (!arg.isNone() && !arg.isInt() && !arg.isIntList()) return std::nullopt;  // by name
    named = call.ints(*at);
  }
  for (auto& d : named) {
    if (d < -dimensions || d >= dimensions) return std::nullopt;  // LibTorch says what is wrong with it
    if (d < 0) d += dimensions;
  }
  std::ranges::sort(named);
  return named;
}

bool keeps_dimensions(const Call& call) {
  const auto at = call.find("keepdim");
  return at && call.flag(*at);
}

bool is_one_of(const std::vector<std::int64_t>& dims, std::size_t d) {
  return std::ranges::binary_search(dims, static_cast<std::int64_t>(d));
}

// The tiling of the result, where `dims` become one element or vanish.
Tiling reduced(const Tiling& tiling, const std::vector<std::int64_t>& dims, bool keeps) {
  auto result = tiling;
  for (std::size_t d = tiling.dimensions(); d-- > 0;) {
    if (!is_one_of(dims, d)) continue;
    result = keeps ? result.without_cuts(d, 1) : result.without(d);
  }
  return result;
}

}  // namespace

void reduce(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated || call.tensors().size() != 1 || !call.gives_one_tensor()) return;
  auto dims = dimensions_of(call, call.tensor(0).dim());
  const bool is_mean = call.name() == "aten::mean";
  if (!dims || (is_mean && !call.tensor(0).is_floating_point() && !call.tensor(0).is_complex())) return;
  if (dims->empty())
    for (std::int64_t d = 0; d < call.tensor(0).dim(); ++d) dims->push_back(d);
  const bool keeps = keeps_dimensions(call);
  const auto dtype_at = call.find("dtype");
  const auto asked = (dtype_at ? call.arg(*dtype_at) : c10::IValue()).toOptional<at::ScalarType>();
  // The sum of many half precision numbers may not fit into one, though their mean does.
  const auto type = asked.value_or(call.tensor(0).scalar_type());
  const bool is_half = is_mean && (type == at::kHalf || type == at::kBFloat16);
  const auto dtype = is_half ? decltype(asked)(at::kFloat) : asked;
  std::int64_t count = 1;
  for (const auto d : *dims) count *= call.tensor(0).size(d);

  auto sums = sums_of_tiles(*value, *dims, [&](std::size_t k) { return at::sum(value->parts[k], *dims, keeps, dtype); });
  sums.tiling = reduced(value->tiling, *dims, keeps);
  for (auto& sum : sums.parts) {
    if (is_mean) sum = at::div(sum, static_cast<double>(count));
    if (is_half) sum = sum.to(type);
  }
  call.give(make_tensor(std::move(sums)));
}

void along_dimension(Call& call) {
  const auto* const value = call.value(0);
  if (value == nullptr || value->is_replicated || call.tensors().size() != 1) return;
  const auto dims = dimensions_of(call, call.tensor(0).dim());
  if (!dims || dims->empty()) return;
  for (const auto d : *dims)
    if (value->tiling.is_cut(static_cast<std::size_t>(d))) return;
  const bool is_reduction = call.find("keepdim").has_value();
  const auto tiling = is_reduction ? reduced(value->tiling, *dims, keeps_dimensions(call)) : value->tiling;
  std::vector<SplitValue> results;
  for (const auto& part : value->parts) {
    auto args = call.args();
    args[0] = part;
    const auto given = call.call(std::move(args));
    if (results.empty()) results.assign(given.size(), {value->home, false, false, tiling, {}, value->devices});
    for (std::size_t k = 0; k < given.size(); ++k) results[k].parts.push_back(given[k].toTensor());
  }
  std::vector<c10::IValue> tensors;
  for (auto& result : results) tensors.emplace_back(make_tensor(std::move(result)));
  call.give(std::move(tensors));
}

}  // namespace lockstep::split
