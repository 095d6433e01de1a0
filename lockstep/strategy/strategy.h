#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collective/cross_device_ops.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/data/element.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/distributed_values.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/axis.h"
#include "lockstep/strategy/call.h"
#include "lockstep/strategy/recorded_calls.h"
#include "lockstep/strategy/scope.h"
#include "lockstep/variable/variable.h"

namespace lockstep {

class ClusterResolver;
template <typename F>
class Function;

// State and computation distributed over a set of devices: the thing a program makes one of, and asks for everything.
//
// Methods that need cross-replica context may be called outside every scope or inside this strategy's; inside a
// replica, or under another strategy, they throw kFailedPrecondition. Not copyable. What was made in its scope may
// outlive it, to be read; run() and scopes may not.
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Over how many replicas gradients are aggregated.
  int num_replicas_in_sync() const;
  StrategyExtended& extended();
  // Null for the strategies of one machine.
  virtual const ClusterResolver* cluster_resolver() const { return nullptr; }
  virtual std::string name() const = 0;
  // What stands before its devices' names in a cluster: "/job:worker/replica:0/task:1"; "" without one.
  virtual std::string task_prefix() const { return ""; }

  // Makes this strategy current: variables and models made while it lives are distributed.
  Scope scope();

  // Calls fn once in every replica, all at the same time, and returns when all are done: a PerReplica of the results,
  // or nothing for void. PerReplica and Mirrored arguments (also inside tuples, vectors and maps) are replaced by the
  // replica's component, others are passed to all. fn may take a ReplicaContext& first; a dataset element is passed
  // whole, or unpacked into its tensors, as fn wants it. An exception of a replica stops the others at their next
  // meeting point and is rethrown here; the strategy stays usable.
  template <typename F, typename... Args>
  auto run(F&& fn, const Args&... args);

  // fn as something that is called like run(fn, ...), and on a GPU is recorded: see Function (strategy/function.h).
  template <typename F>
  Function<std::decay_t<F>> function(F&& fn, const FunctionOptions& options = {});

  // Combines a per-replica value into one. With an axis, also over that dimension of every replica's tensor; a mean
  // then weighs elements, so that replicas with fewer rows count less. Structures are reduced leaf by leaf.
  // A mean of integer tensors is float64; C++ integers have none (kInvalidArgument).
  template <typename T>
  T reduce(ReduceOpArg op, const PerReplica<T>& value, const Axis& axis = {});
  // All copies are equal already: a mean is the value, a sum over several replicas is kInvalidArgument. With an axis,
  // as a PerReplica value.
  template <typename T>
  T reduce(ReduceOpArg op, const Mirrored<T>& value, const Axis& axis = {});
  // A value that is not distributed: its mean is itself; its sum is only defined for one replica, or for 0. With several
  // workers: over what each of them gives.
  at::Tensor reduce(ReduceOpArg op, const at::Tensor& value, const Axis& axis = {});
  double reduce(ReduceOpArg op, double value);
  // The components of a variable synchronised on read; a mirrored one counts as Mirrored.
  at::Tensor reduce(ReduceOpArg op, const Variable& value);

  // The replicas' tensors one after the other along `axis`, in replica order. A value that is not distributed is
  // returned as it is. IndexedSlices are made dense first.
  template <typename T>
  T gather(const PerReplica<T>& value, std::int64_t axis);
  at::Tensor gather(const PerReplica<IndexedSlices>& value, std::int64_t axis);
  at::Tensor gather(const at::Tensor& value, std::int64_t axis);

  // This process's components, in replica order; of a structure with distributed values in it, the structure once for
  // each replica; of anything else, the value itself.
  template <typename T>
  std::vector<T> experimental_local_results(const PerReplica<T>& value) const {
    return value.values();
  }
  template <typename T>
  std::vector<T> experimental_local_results(const Mirrored<T>& value) const {
    return value.values();
  }
  template <typename T>
  auto experimental_local_results(const T& value) const {
    std::vector<decltype(select_replica(0, value))> results;
    if constexpr (internal::HasDistributed<T>::value)
      for (int replica = 0; replica < replicas().size(); ++replica) results.push_back(select_replica(replica, value));
    else results.push_back(value);
    return results;
  }
  std::vector<at::Tensor> experimental_local_results(const Variable& value) const { return value.components(); }

  // For replicas that own several logical devices (MirroredOptions::device_assignment): these say where a tensor lies, and so
  // where what is computed of it is. The result has the value of `tensor`, and is used like it: Note [split tensors]. They are
  // called inside run(); outside where this process has one replica (else kFailedPrecondition). Without logical devices:
  // kUnimplemented.
  //
  // The whole tensor on one of them. Throws kInvalidArgument for a number that the replica does not have.
  at::Tensor experimental_assign_to_logical_device(const at::Tensor& tensor, int logical_device_id) const;
  // One tile on each: dimension d is cut in partition_dimensions[d] equal parts, and tiles are numbered row by row. Throws
  // kInvalidArgument unless there is a number for each dimension, each divides its dimension, and there are as many tiles as
  // the replica has logical devices.
  at::Tensor experimental_split_to_logical_devices(const at::Tensor& tensor,
                                                   const std::vector<std::int64_t>& partition_dimensions) const;
  // A copy on each.
  at::Tensor experimental_replicate_to_logical_devices(const at::Tensor& tensor) const;

  // Splits every global batch of `dataset` over the replicas. See DistributedDataset.
  DistributedDataset experimental_distribute_dataset(const data::Dataset& dataset, const InputOptions& options = {});

  // Calls dataset_fn once (once a replica with InputReplicationMode::kPerReplica); its batches are for one replica.
  using DatasetFn = std::function<data::Dataset(const InputContext&)>;
  DistributedDataset distribute_datasets_from_function(const DatasetFn& dataset_fn, const InputOptions& options = {});
  // The older name.
  DistributedDataset experimental_distribute_datasets_from_function(const DatasetFn& dataset_fn,
                                                                    const InputOptions& options = {}) {
    return distribute_datasets_from_function(dataset_fn, options);
  }

  // One value for each local replica: value_fn(ValueContext). Values stay where value_fn put them.
  template <typename F>
  auto experimental_distribute_values_from_function(F&& value_fn);

  // A dataset of the tensors' rows.
  data::Dataset experimental_make_numpy_dataset(const std::vector<at::Tensor>& arrays);
  // Of .npy files, which are mapped, not read.
  data::Dataset experimental_make_numpy_dataset(const std::vector<std::string>& files);
  data::Dataset experimental_make_numpy_dataset(std::initializer_list<const char*> files) {
    return experimental_make_numpy_dataset(std::vector<std::string>(files.begin(), files.end()));
  }

  ReplicaSet& replicas() const { return *replicas_; }
  const CrossDeviceOps& cross_device_ops() const { return *cross_device_ops_; }

 protected:
  Strategy(std::vector<LogicalDevice> devices, const ReplicaSetOptions& options,
           std::shared_ptr<const CrossDeviceOps> cross_device_ops);
  // For the default strategy, which borrows the process's default replica.
  explicit Strategy(ReplicaSet& borrowed);

 private:
  friend class StrategyExtended;

  // Throws kFailedPrecondition unless the caller is in cross-replica context of this strategy, or in no scope.
  void require_cross_replica_or_default(const char* what) const;
  // Throws kInvalidArgument unless a per-replica value has one component for each replica.
  void require_one_each(std::size_t components, const char* what) const;
  bool is_default() const;
  // Says once that every replica of several gets the whole element.
  void note_whole_element() const;
  void run_replicas(FunctionRef<void(ReplicaContext&)> body);
  // The replica whose logical devices a call means.
  int replica_here(const char* what) const;
  at::Tensor reduce_leaf(ReduceOp op, std::span<const at::Tensor> values, const Axis& axis);
  IndexedSlices reduce_slices(ReduceOp op, std::vector<IndexedSlices> values);
  at::Tensor gather_leaf(std::span<const at::Tensor> values, std::int64_t axis);

  // Const after construction.
  std::shared_ptr<ReplicaSet> owned_;
  ReplicaSet* replicas_;
  std::shared_ptr<const CrossDeviceOps> cross_device_ops_;
  std::unique_ptr<StrategyExtended> extended_;
};

// The strategy that is current on this thread; the default strategy outside every scope.
Strategy& get_strategy();
// True inside a scope or a replica of a strategy that is not the default one.
bool has_strategy() noexcept;
// Makes `strategy` current on this thread until it is replaced or cleared with nullptr.
// Throws kFailedPrecondition inside a scope.
void experimental_set_strategy(Strategy* strategy);

}  // namespace lockstep

#include "lockstep/strategy/strategy_inl.h"
