#include "lockstep/strategy/strategy_extended.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/device/torch_device.h"
#include "lockstep/variable/variable_host.h"

namespace lockstep {

Mirrored<at::Tensor> StrategyExtended::copies(const at::Tensor& value, const Destinations& destinations) const {
  require_dense(value, "broadcast_to");
  std::vector<at::Tensor> components;
  const auto put = [&](c10::Device device) {
    components.push_back(value.to(device, value.scalar_type(), false, /*copy=*/!components.empty()));
  };
  if (destinations.devices().empty()) {
    for (int replica = 0; replica < strategy_.replicas().size(); ++replica) put(strategy_.replicas().torch_device(replica));
  } else {
    for (const auto& name : destinations.devices()) put(torch_device(find_logical_device(name)));
  }
  return Mirrored<at::Tensor>(std::move(components));
}

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOpArg op, const PerReplica<at::Tensor>& value,
                                                 const Destinations& destinations, const CommunicationOptions& options) {
  strategy_.require_cross_replica_or_default("reduce_to");
  options.validate();
  return copies(strategy_.reduce(op, value), destinations);
}

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOpArg op, const Mirrored<at::Tensor>& value,
                                                 const Destinations& destinations, const CommunicationOptions& options) {
  strategy_.require_cross_replica_or_default("reduce_to");
  options.validate();
  return copies(strategy_.reduce(op, value), destinations);
}

Mirrored<IndexedSlices> StrategyExtended::reduce_to(ReduceOpArg op, const PerReplica<IndexedSlices>& value,
                                                    const Destinations& destinations, const CommunicationOptions& options) {
  strategy_.require_cross_replica_or_default("reduce_to");
  options.validate();
  const auto reduced = strategy_.reduce(op, value);
  const auto values = copies(reduced.values, destinations);
  const auto indices = copies(reduced.indices, destinations);
  std::vector<IndexedSlices> components;
  for (std::size_t i = 0; i < values.size(); ++i) components.push_back({values[i], indices[i], reduced.dense_shape});
  return Mirrored<IndexedSlices>(std::move(components));
}

at::Tensor StrategyExtended::reduce_to(ReduceOpArg op, const at::Tensor& value, const Destinations& destinations,
                                       const CommunicationOptions& options) {
  options.validate();
  return copies(strategy_.reduce(op, value), destinations)[0];
}

std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce_to(ReduceOpArg op,
                                                                    const std::vector<ValueAndDestinations>& pairs,
                                                                    const CommunicationOptions& options) {
  std::vector<Mirrored<at::Tensor>> results;
  for (const auto& [value, destinations] : pairs) results.push_back(reduce_to(op, value, destinations, options));
  return results;
}

std::vector<Mirrored<IndexedSlices>> StrategyExtended::batch_reduce_to(ReduceOpArg op,
                                                                       const std::vector<SlicesAndDestinations>& pairs,
                                                                       const CommunicationOptions& options) {
  std::vector<Mirrored<IndexedSlices>> results;
  for (const auto& [value, destinations] : pairs) results.push_back(reduce_to(op, value, destinations, options));
  return results;
}

Mirrored<at::Tensor> StrategyExtended::broadcast_to(const at::Tensor& value) {
  return broadcast_to(value, PerReplica<at::Tensor>());
}

Mirrored<at::Tensor> StrategyExtended::broadcast_to(const at::Tensor& value, const Destinations& destinations) {
  strategy_.require_cross_replica_or_default("broadcast_to");
  return copies(value, destinations);
}

void StrategyExtended::require_component_count(const Variable& variable) const {
  const bool is_ours = variable.replicas() == &strategy_.replicas() || (!variable.is_distributed() && strategy_.is_default());
  if (!is_ours)
    throw Error(ErrorCode::kInvalidArgument,
                str("update: variable '", variable.name(), "' was not made in the scope() of this ", strategy_.name(),
                    "; make it there"));
}

StrategyExtended::Colocation StrategyExtended::colocate_vars_with(const Variable& variable) {
  const auto mode = internal::current_mode();
  if (mode.replicas == nullptr && !strategy_.is_default())
    throw Error(ErrorCode::kFailedPrecondition,
                str("colocate_vars_with must be called inside the scope() of its ", strategy_.name()));
  if (mode.replicas != nullptr && mode.replicas != &strategy_.replicas())
    internal::throw_mixed_strategies("colocate_vars_with");
  if (!variable_created_in_scope(variable))
    throw Error(ErrorCode::kInvalidArgument, str("colocate_vars_with: variable '", variable.name(),
                                                 "' was not made in this strategy's scope(); give one that was"));
  return Colocation(variable);
}

StrategyExtended::OnLogicalDevice StrategyExtended::experimental_logical_device(int logical_device_id) {
  strategy_.replicas().require_logical_device(0, logical_device_id);
  return OnLogicalDevice(logical_device_id);
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return strategy_.is_default() ? !variable.is_distributed() : variable.replicas() == &strategy_.replicas();
}

std::vector<std::string> StrategyExtended::worker_devices() const {
  if (strategy_.is_default())
    throw Error(ErrorCode::kFailedPrecondition, "the default strategy has no worker_devices; make a strategy with devices");
  if (const auto& host = strategy_.replicas().options().variable_host; host != nullptr)
    if (auto of_worker = host->worker_devices(); !of_worker.empty()) return of_worker;
  std::vector<std::string> names;
  const auto task = strategy_.task_prefix();
  for (const auto& device : strategy_.replicas().devices())
    names.push_back(task.empty() ? device.name : task + device.name.substr(device.name.rfind("/device:")));
  return names;
}

bool StrategyExtended::experimental_between_graph() const { return strategy_.replicas().workers() != nullptr; }

bool StrategyExtended::should_checkpoint() const { return strategy_.replicas().first_replica() == 0; }

}  // namespace lockstep
