#pragma once

// The templates of Strategy: they take user types apart and call the type-erased core.

namespace lockstep {

template <typename F, typename... Args>
auto Strategy::run(F&& fn, const Args&... args) {
  using Result =
      std::remove_cvref_t<decltype(internal::call_in_replica(fn, std::declval<ReplicaContext&>(), select_replica(0, args)...))>;
  (internal::for_each_distributed(args, [this](std::size_t components) { require_one_each(components, "run"); }), ...);
  if constexpr (internal::is_one_element_v<Args...>) note_whole_element();
  if constexpr (std::is_void_v<Result>) {
    run_replicas([&](ReplicaContext& context) {
      internal::call_in_replica(fn, context, select_replica(context.local_replica_id(), args)...);
    });
  } else {
    std::vector<std::optional<Result>> results(static_cast<std::size_t>(replicas().size()));
    run_replicas([&](ReplicaContext& context) {
      const int replica = context.local_replica_id();
      results[static_cast<std::size_t>(replica)].emplace(
          internal::call_in_replica(fn, context, select_replica(replica, args)...));
    });
    std::vector<Result> values;
    values.reserve(results.size());
    for (auto& result : results) values.push_back(std::move(*result));
    return PerReplica<Result>(std::move(values));
  }
}

namespace internal {

// Throws kInvalidArgument when two replicas' structures differ (a vector's length, a map's keys).
void require_same_structure(const std::vector<LeafList>& leaves);

}  // namespace internal

template <typename T>
T Strategy::reduce(ReduceOpArg op, const PerReplica<T>& value, const Axis& axis) {
  require_cross_replica_or_default("reduce");
  require_one_each(value.size(), "reduce");
  std::vector<T> copies = value.values();
  std::vector<internal::LeafList> leaves(copies.size());
  for (std::size_t r = 0; r < copies.size(); ++r) nest::for_each_leaf(copies[r], leaves[r]);
  internal::require_same_structure(leaves);
  std::vector<at::Tensor> tensors;
  for (std::size_t k = 0; k < leaves[0].dense.size(); ++k) {
    tensors.clear();
    for (const auto& list : leaves) tensors.push_back(*list.dense[k]);
    *leaves[0].dense[k] = reduce_leaf(op, tensors, axis);
  }
  for (std::size_t k = 0; k < leaves[0].sparse.size(); ++k) {
    std::vector<IndexedSlices> slices;
    for (const auto& list : leaves) slices.push_back(*list.sparse[k]);
    *leaves[0].sparse[k] = reduce_slices(op, std::move(slices));
  }
  leaves[0].write_back();
  return std::move(copies[0]);
}

template <typename T>
T Strategy::reduce(ReduceOpArg op, const Mirrored<T>& value, const Axis& axis) {
  require_cross_replica_or_default("reduce");
  if (axis.is_given()) return reduce(op, PerReplica<T>(value.values()), axis);
  if (op == ReduceOp::kSum && num_replicas_in_sync() > 1)
    throw Error(ErrorCode::kInvalidArgument,
                "reduce: the sum of a Mirrored value is not defined, since all its copies are the same value; use MEAN");
  return value[0];
}

template <typename T>
T Strategy::gather(const PerReplica<T>& value, std::int64_t axis) {
  require_cross_replica_or_default("gather");
  require_one_each(value.size(), "gather");
  std::vector<T> copies = value.values();
  std::vector<internal::LeafList> leaves(copies.size());
  for (std::size_t r = 0; r < copies.size(); ++r) nest::for_each_leaf(copies[r], leaves[r]);
  internal::require_same_structure(leaves);
  leaves[0].require_dense("gather");
  for (std::size_t k = 0; k < leaves[0].dense.size(); ++k) {
    std::vector<at::Tensor> tensors;
    for (const auto& list : leaves) tensors.push_back(*list.dense[k]);
    *leaves[0].dense[k] = gather_leaf(tensors, axis);
  }
  return std::move(copies[0]);
}

template <typename F>
auto Strategy::experimental_distribute_values_from_function(F&& value_fn) {
  using Value = std::remove_cvref_t<std::invoke_result_t<F&, const ValueContext&>>;
  std::vector<Value> values;
  for (int replica = 0; replica < replicas().size(); ++replica)
    values.push_back(value_fn(ValueContext{replicas().first_replica() + replica, num_replicas_in_sync()}));
  return PerReplica<Value>(std::move(values));
}

}  // namespace lockstep
