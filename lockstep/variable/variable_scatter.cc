#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/over_workers.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/variable/variable_state.h"

// Row-wise writes of Variable.

namespace lockstep {
namespace {

// All replicas' rows as one list, by the variable's aggregation.
IndexedSlices combine(const Variable::State& state, std::span<void* const> offers) {
  const auto aggregation = state.aggregation;
  WorkerGroup* const workers = state.replicas->workers();
  const auto offer = [&](std::size_t replica) { return *static_cast<const IndexedSlices*>(offers[replica]); };
  if (aggregation == VariableAggregation::kOnlyFirstReplica) {
    if (workers == nullptr) return offer(0);
    // Numbers of rows may differ, and only worker 0's count.
    const auto rows = workers->all_gather("rows for a variable", std::array{offer(0).values.detach()});
    const auto indices = workers->all_gather("indices for a variable", std::array{offer(0).indices});
    return {rows[0], indices[0], offer(0).dense_shape};
  }
  std::vector<IndexedSlices> parts;
  for (std::size_t replica = 0; replica < offers.size(); ++replica) parts.push_back(offer(replica));
  auto all = workers == nullptr ? concatenate(parts) : gather_slices(*workers, parts);
  if (aggregation == VariableAggregation::kMean) all.values = mean_of_sum(all.values, state.replicas->global_size());
  return all;
}

void apply_rows(at::Tensor& component, VariableWrite how, const IndexedSlices& given) {
  const auto indices = given.indices.to(component.device(), at::kLong);
  const auto values = given.values.detach().to(component.options());
  if (how == VariableWrite::kAdd) component.index_add_(0, indices, values);
  else if (how == VariableWrite::kSub) component.index_add_(0, indices, values, -1);
  else if (how == VariableWrite::kAssign) component.index_copy_(0, indices, values);
  else
    for (std::int64_t k = 0; k < indices.numel(); ++k) {  // one by one: an index may repeat
      auto row = component.select(0, indices[k].item<std::int64_t>());
      if (how == VariableWrite::kMul) row.mul_(values[k]);
      else if (how == VariableWrite::kDiv) row.copy_(row / values[k]);
      else if (how == VariableWrite::kMin) row.copy_(at::minimum(row, values[k]));
      else row.copy_(at::maximum(row, values[k]));
    }
}

}  // namespace

Variable& Variable::scatter_add(const IndexedSlices& slices) { return scatter(VariableWrite::kAdd, "scatter_add", slices); }
Variable& Variable::scatter_sub(const IndexedSlices& slices) { return scatter(VariableWrite::kSub, "scatter_sub", slices); }
Variable& Variable::scatter_mul(const IndexedSlices& slices) { return scatter(VariableWrite::kMul, "scatter_mul", slices); }
Variable& Variable::scatter_div(const IndexedSlices& slices) { return scatter(VariableWrite::kDiv, "scatter_div", slices); }
Variable& Variable::scatter_min(const IndexedSlices& slices) { return scatter(VariableWrite::kMin, "scatter_min", slices); }
Variable& Variable::scatter_max(const IndexedSlices& slices) { return scatter(VariableWrite::kMax, "scatter_max", slices); }
Variable& Variable::scatter_update(const IndexedSlices& slices) {
  return scatter(VariableWrite::kAssign, "scatter_update", slices);
}

Variable& Variable::scatter(VariableWrite how, const char* what, const IndexedSlices& slices) {
  const auto aggregation = state_->aggregation;
  if (state_->is_on_read())
    throw Error(ErrorCode::kUnimplemented, str(what, ": variable '", name(),
                                               "' is synchronised on read, which has no row-wise "
                                               "writes; use a mirrored variable (ON_WRITE)"));
  const bool is_exclusive = how == VariableWrite::kAssign || how == VariableWrite::kMin || how == VariableWrite::kMax;
  if (state_->replicas != nullptr && is_exclusive && aggregation != VariableAggregation::kNone &&
      aggregation != VariableAggregation::kOnlyFirstReplica)
    throw Error(ErrorCode::kUnimplemented, str(what, ": variable '", name(), "' has aggregation ", aggregation,
                                               "; only NONE and ONLY_FIRST_REPLICA can do it"));
  slices.validate();
  const auto& whole = state_->components[0];
  if (whole.dim() == 0 || slices.values.sizes().slice(1) != whole.sizes().slice(1))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(what, ": the rows have shape ", slices.values.sizes().slice(1), " and variable '", name(),
                              "' has shape ", whole.sizes(), "; rows must fit its dimensions after the first"));
  slices.require_indices_below(whole.size(0), lockstep::str(what, " of variable '", name(), "'"));
  const c10::NoGradGuard no_grad;
  const auto apply = [&](at::Tensor& component, const IndexedSlices& given) {
    if (!is_remote()) return apply_rows(component, how, given);
    state_->remote->write_rows(how, {given.values.detach().to(at::kCPU, scalar_type()), given.indices.to(at::kCPU, at::kLong)});
  };

  const int replica = here();
  ReplicaContext* context = internal::current_mode().context;
  if (replica >= 0 && context != nullptr && state_->replicas != nullptr && aggregation != VariableAggregation::kNone) {
    auto mine = slices;
    state_->replicas->merge(*context, "a row-wise write to a variable", &mine, [&](std::span<void* const> offers) {
      const auto all = combine(*state_, offers);
      for (auto& component : state_->components) apply(component, all);
    });
  } else if (replica >= 0) {
    apply(state_->components[is_remote() ? 0 : static_cast<std::size_t>(replica)], slices);
  } else {
    for (auto& component : state_->components) apply(component, slices);
  }
  return *this;
}

}  // namespace lockstep
