#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collective/communication_options.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/distributed_values.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/nest.h"
#include "lockstep/replica/replica_set.h"

namespace lockstep {

// What one replica of a run() can ask and do. Reach it with get_replica_context(), or take `ReplicaContext&` as the
// first parameter of the function given to run(). Use it only on the replica's own thread.
class ReplicaContext {
 public:
  ReplicaContext(ReplicaSet& replicas, int local_replica_id) : replicas_(replicas), local_replica_id_(local_replica_id) {}
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  int replica_id_in_sync_group() const noexcept { return replicas_.first_replica() + local_replica_id_; }
  int num_replicas_in_sync() const noexcept { return replicas_.global_size(); }
  // The position among this process's replicas.
  int local_replica_id() const noexcept { return local_replica_id_; }
  Strategy& strategy() const { return *replicas_.strategy(); }
  ReplicaSet& replicas() const noexcept { return replicas_; }
  const std::string& device() const { return replicas_.devices()[static_cast<std::size_t>(local_replica_id_)].name; }
  c10::Device torch_device() const { return replicas_.torch_device(local_replica_id_); }

  // Pauses all replicas and calls fn(strategy, PerReplica(args)...) once, in cross-replica context, on replica 0's
  // thread, with replica 0's fn. A PerReplica or Mirrored result is handed out component by component, anything else
  // goes to everybody. All replicas must call it equally often.
  template <typename F, typename... Args>
  auto merge_call(F&& fn, const Args&... args);

  // Combines `value` over all replicas; every replica gets the result. `value` is a tensor, an IndexedSlices, a number,
  // or a tuple, vector, map or struct of them, of which every leaf is reduced. Differentiable for tensors.
  // A mean of integers is float64.
  template <typename T>
  T all_reduce(ReduceOpArg op, const T& value, const CommunicationOptions& options = {});

  // What converts to a tensor (a Variable) is read here first.
  template <typename T>
  requires(std::is_class_v<T>&& std::is_convertible_v<const T&, at::Tensor> && !std::is_same_v<T, at::Tensor>) at::Tensor
      all_reduce(ReduceOpArg op, const T& value, const CommunicationOptions& options = {}) {
    return all_reduce(op, static_cast<at::Tensor>(value), options);
  }

  // The same in place, for large buffers that the caller keeps. Not differentiable, and no mean of integers. Throws
  // kInvalidArgument for a value that is not dense in memory.
  void all_reduce_(ReduceOpArg op, at::Tensor& value);

  // The replicas' tensors one after the other along `axis`, in replica order; sizes may differ there. Every leaf of a
  // structure is gathered. Differentiable. IndexedSlices are kUnimplemented.
  template <typename T>
  T all_gather(const T& value, std::int64_t axis, const CommunicationOptions& options = {});

  // All replicas wait for each other.
  void barrier();

 private:
  // Throws kFailedPrecondition unless the calling thread is inside this replica.
  void require_current(const char* what) const;
  // All replicas compare their structures' lengths and keys; throws kInvalidArgument on all when they differ.
  void require_same_structure(const char* what, const internal::LeafList& leaves, const CommunicationOptions& options);
  void all_reduce_leaves(ReduceOp op, const std::vector<at::Tensor*>& dense, const std::vector<IndexedSlices*>& sparse,
                         const CommunicationOptions& options);
  at::Tensor all_gather_leaf(const at::Tensor& value, std::int64_t axis, const CommunicationOptions& options);

  ReplicaSet& replicas_;
  const int local_replica_id_;
};

// The replica that the calling thread runs: inside run() that replica's; outside every scope the default replica's;
// null in cross-replica context.
ReplicaContext* get_replica_context() noexcept;

// The same, never null: throws kFailedPrecondition in cross-replica context.
ReplicaContext& replica_context();

// True inside a scope() and inside merge_call's function, outside run().
bool in_cross_replica_context() noexcept;

namespace internal {

// The single replica of code that runs outside every scope.
ReplicaSet& default_replicas();
void set_default_strategy(Strategy* strategy);

// The replicas that what is made in `mode` belongs to; null outside every strategy.
std::shared_ptr<ReplicaSet> strategy_replicas(const Mode& mode);

// The core of merge_call: `mine` is this replica's argument record; `body` gets everybody's, on replica 0's thread.
void merge(ReplicaContext& context, void* mine, FunctionRef<void(std::span<void* const>)> body);
void merge_end(ReplicaContext& context);
// Throws kInvalidArgument unless merge_call's result has one component for each replica.
void require_components(std::size_t components, std::size_t replicas);

}  // namespace internal

template <typename F, typename... Args>
auto ReplicaContext::merge_call(F&& fn, const Args&... args) {
  require_current("merge_call");
  using Result = std::invoke_result_t<F&, Strategy&, PerReplica<std::decay_t<Args>>...>;
  using Kept = std::conditional_t<std::is_void_v<Result>, bool, Result>;
  struct Record {
    std::tuple<std::decay_t<Args>...> args;
    // Shared: a replica may still read it while another, which failed, is gone.
    std::shared_ptr<std::optional<Kept>> result = nullptr;
  } mine{{args...}};
  internal::merge(*this, &mine, [&](std::span<void* const> all) {
    // Before the call: a merge inside fn uses the same list of records.
    const auto result = std::make_shared<std::optional<Kept>>();
    for (void* record : all) static_cast<Record*>(record)->result = result;
    const auto call = [&]<std::size_t... I>(std::index_sequence<I...>)->decltype(auto) {
      return fn(strategy(),
                internal::collect<std::decay_t<Args>>(
                    all, [](void* record) -> const auto& { return std::get<I>(static_cast<Record*>(record)->args); })...);
    };
    if constexpr (std::is_void_v<Result>) call(std::index_sequence_for<Args...>());
    else result->emplace(call(std::index_sequence_for<Args...>()));
    if constexpr (IsDistributed<Result>::value) internal::require_components((*result)->size(), all.size());
  });
  if constexpr (!std::is_void_v<Result>) {
    auto selected = select_replica(local_replica_id_, **mine.result);
    internal::merge_end(*this);  // a replica whose copy of the result fails is noticed here
    return selected;
  }
}

template <typename T>
T ReplicaContext::all_reduce(ReduceOpArg op, const T& value, const CommunicationOptions& options) {
  require_current("all_reduce");
  T result = value;
  internal::LeafList leaves;
  nest::for_each_leaf(result, leaves);
  require_same_structure("all_reduce", leaves, options);
  all_reduce_leaves(op, leaves.dense, leaves.sparse, options);
  leaves.write_back();
  return result;
}

template <typename T>
T ReplicaContext::all_gather(const T& value, std::int64_t axis, const CommunicationOptions& options) {
  require_current("all_gather");
  T result = value;
  internal::LeafList leaves;
  nest::for_each_leaf(result, leaves);
  leaves.require_dense("all_gather");
  require_same_structure("all_gather", leaves, options);
  for (at::Tensor* leaf : leaves.dense) *leaf = all_gather_leaf(*leaf, axis, options);
  return result;
}

}  // namespace lockstep
