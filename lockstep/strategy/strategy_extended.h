#pragma once

#include <c10/core/GradMode.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collective/communication_options.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

// Where a result is put: a device's name, or the devices of a distributed value or variable.
class Destinations {
 public:
  Destinations(const char* device) : devices_({device}) {}                  // NOLINT: implicit on purpose
  Destinations(const std::string& device) : devices_({device}) {}           // NOLINT
  Destinations(const Variable& variable) : devices_(variable.devices()) {}  // NOLINT
  template <typename T>
  Destinations(const PerReplica<T>&) {}  // NOLINT: the replicas' own devices
  template <typename T>
  Destinations(const Mirrored<T>&) {}  // NOLINT

  // Empty: one on each replica's device.
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  std::vector<std::string> devices_;
};

// The parts of a strategy that libraries use more than programs do: reductions to given devices, updates of variables
// component by component, and what the strategy knows about its devices.
class StrategyExtended {
 public:
  explicit StrategyExtended(Strategy& strategy) : strategy_(strategy) {}

  // Combines `value` and puts a copy on every destination device. Cross-replica context.
  Mirrored<at::Tensor> reduce_to(ReduceOpArg op, const PerReplica<at::Tensor>& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {});
  Mirrored<at::Tensor> reduce_to(ReduceOpArg op, const Mirrored<at::Tensor>& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {});
  Mirrored<IndexedSlices> reduce_to(ReduceOpArg op, const PerReplica<IndexedSlices>& value, const Destinations& destinations,
                                    const CommunicationOptions& options = {});
  at::Tensor reduce_to(ReduceOpArg op, const at::Tensor& value, const Destinations& destinations,
                       const CommunicationOptions& options = {});

  // The same for several values at once; results in the order of the pairs.
  using ValueAndDestinations = std::pair<PerReplica<at::Tensor>, Destinations>;
  std::vector<Mirrored<at::Tensor>> batch_reduce_to(ReduceOpArg op, const std::vector<ValueAndDestinations>& pairs,
                                                    const CommunicationOptions& options = {});
  using SlicesAndDestinations = std::pair<PerReplica<IndexedSlices>, Destinations>;
  std::vector<Mirrored<IndexedSlices>> batch_reduce_to(ReduceOpArg op, const std::vector<SlicesAndDestinations>& pairs,
                                                       const CommunicationOptions& options = {});

  // A copy of `value` on every destination device (by default on every replica's). A number needs no copies.
  Mirrored<at::Tensor> broadcast_to(const at::Tensor& value);
  Mirrored<at::Tensor> broadcast_to(const at::Tensor& value, const Destinations& destinations);
  double broadcast_to(double value) { return value; }

  // Calls fn(component, args...) for every component of `variable`, on its device, with the component's part of
  // distributed arguments; reads and writes of the variable inside fn mean that component. Results as Mirrored.
  // Inside a replica all replicas must call it; it is done once, and every replica gets all results (get() is its own).
  template <typename F, typename... Args>
  auto update(const Variable& variable, F&& fn, const Args&... args);

  // Calls fn(args...) once for every device in `colocate_with`, in order.
  template <typename F, typename... Args>
  auto update_non_slot(const std::vector<std::string>& colocate_with, F&& fn, const Args&... args);

  // The older name of Strategy::run.
  template <typename F, typename... Args>
  auto call_for_each_replica(F&& fn, const Args&... args) {
    return strategy_.run(std::forward<F>(fn), args...);
  }

  // While it lives, variables made on this thread are put on `variable`'s devices: with parameter servers on its server, whole;
  // for the other strategies that is where they go anyway.
  // Throws kFailedPrecondition outside the strategy's scope, kInvalidArgument for another strategy's variable.
  using Colocation = internal::BesideGuard;
  [[nodiscard]] Colocation colocate_vars_with(const Variable& variable);

  // While it lives, variables made on this thread are on that logical device of each replica. Throws kUnimplemented for
  // replicas without logical devices, kInvalidArgument for one that they do not have.
  using OnLogicalDevice = internal::LogicalDeviceGuard;
  [[nodiscard]] OnLogicalDevice experimental_logical_device(int logical_device_id);

  bool variable_created_in_scope(const Variable& variable) const;
  // The value of a variable across replicas.
  at::Tensor read_var(const Variable& variable) const { return variable.read_value(); }
  const Variable& value_container(const Variable& variable) const { return variable; }

  // One device for each replica of this worker. The default strategy has none: kFailedPrecondition.
  std::vector<std::string> worker_devices() const;
  std::vector<std::string> parameter_devices() const { return worker_devices(); }
  std::vector<std::string> non_slot_devices(const std::vector<Variable>&) const { return worker_devices(); }

  bool experimental_require_static_shapes() const { return false; }
  // True where every worker runs a program of its own.
  bool experimental_between_graph() const;
  bool experimental_should_init() const { return true; }
  // True on one worker: the chief.
  bool should_checkpoint() const;
  bool should_save_summary() const { return should_checkpoint(); }

 private:
  void require_component_count(const Variable& variable) const;
  Mirrored<at::Tensor> copies(const at::Tensor& value, const Destinations& destinations) const;

  Strategy& strategy_;
};

namespace internal {

// Calls fn for 0 .. count-1 inside the update context of each component, and collects what it returns.
template <typename F>
auto for_each_component(std::size_t count, F&& fn) {
  using Result = std::remove_cvref_t<std::invoke_result_t<F&, std::size_t>>;
  if constexpr (std::is_void_v<Result>) {
    for (std::size_t i = 0; i < count; ++i) {
      const UpdateGuard guard(static_cast<int>(i));
      fn(i);
    }
  } else {
    std::vector<Result> results;
    for (std::size_t i = 0; i < count; ++i) {
      const UpdateGuard guard(static_cast<int>(i));
      results.push_back(fn(i));
    }
    return Mirrored<Result>(std::move(results));
  }
}

}  // namespace internal

template <typename F, typename... Args>
auto StrategyExtended::update(const Variable& variable, F&& fn, const Args&... args) {
  const auto mode = internal::current_mode();
  ReplicaContext* context = mode.context;
  const auto update_all = [&](const auto&... values) {
    strategy_.require_cross_replica_or_default("update");
    require_component_count(variable);
    const auto scope = internal::ModeGuard({&strategy_.replicas(), nullptr});
    const c10::NoGradGuard no_grad;  // a write to a trainable component is not part of anybody's graph
    return internal::for_each_component(variable.size(), [&](std::size_t i) {
      at::Tensor component = variable.components()[i];
      return fn(component, select_replica(static_cast<int>(i), values)...);
    });
  };
  if (context == nullptr || mode.replicas != &strategy_.replicas()) return update_all(args...);
  using Result = decltype(update_all(args...));
  if constexpr (std::is_void_v<Result>) {
    context->merge_call([&](Strategy&, const auto&... values) { update_all(values...); },
                        select_replica(context->local_replica_id(), args)...);
  } else {
    struct Whole {  // handed to every replica as it is, not component by component
      Result results;
    };
    return context
        ->merge_call([&](Strategy&, const auto&... values) { return Whole{update_all(values...)}; },
                     select_replica(context->local_replica_id(), args)...)
        .results;
  }
}

template <typename F, typename... Args>
auto StrategyExtended::update_non_slot(const std::vector<std::string>& colocate_with, F&& fn, const Args&... args) {
  strategy_.require_cross_replica_or_default("update_non_slot");
  const auto scope = internal::ModeGuard({&strategy_.replicas(), nullptr});
  return internal::for_each_component(
      colocate_with.size(), [&]([[maybe_unused]] std::size_t i) { return fn(select_replica(static_cast<int>(i), args)...); });
}

}  // namespace lockstep
