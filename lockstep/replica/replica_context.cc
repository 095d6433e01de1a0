#include "lockstep/replica/replica_context.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/collective/rendezvous.h"
#include "lockstep/replica/differentiable.h"
#include "lockstep/replica/mode.h"

namespace lockstep {
namespace {

bool needs_gradient(const at::Tensor& value) { return c10::GradMode::is_enabled() && value.requires_grad(); }

struct DefaultReplicas {
  DefaultReplicas() : replicas(nullptr, {find_logical_device("CPU:0")}, {}), context(replicas, 0) {}
  ReplicaSet replicas;
  ReplicaContext context;
};

// Never destroyed: code may run outside every scope until the very end of the process.
DefaultReplicas& default_state() {
  static auto* instance = new DefaultReplicas;
  return *instance;
}

}  // namespace

namespace internal {

ReplicaSet& default_replicas() { return default_state().replicas; }
void set_default_strategy(Strategy* strategy) { default_state().replicas.set_strategy(strategy); }

std::shared_ptr<ReplicaSet> strategy_replicas(const Mode& mode) {
  if (mode.replicas == nullptr || mode.replicas == &default_replicas()) return nullptr;
  return mode.replicas->shared_from_this();
}

void merge(ReplicaContext& context, void* mine, FunctionRef<void(std::span<void* const>)> body) {
  ReplicaSet& replicas = context.replicas();
  if (&replicas != &default_replicas()) return replicas.merge(context, "merge_call", mine, body);
  const ModeGuard mode({&replicas, nullptr});  // outside every run() there is nobody to meet
  body({&mine, 1});
}

void merge_end(ReplicaContext& context) {
  if (&context.replicas() != &default_replicas())
    context.replicas().group(context.local_replica_id()).barrier("the end of merge_call");
}

void require_components(std::size_t components, std::size_t replicas) {
  if (components == replicas) return;
  throw Error(ErrorCode::kInvalidArgument, str("merge_call: the function returned a distributed value of ", components,
                                               " components to ", replicas, " replicas; it must have one for each"));
}

std::size_t component_here(std::size_t count, const char* kind) {
  const ReplicaContext* context = current_mode().context;
  const int update = current_update_replica();
  if (context == nullptr && update < 0)
    throw Error(ErrorCode::kInvalidArgument, str("a ", kind,
                                                 " has no single value outside a replica; reduce() it, gather() it, or take "
                                                 "experimental_local_results()"));
  const auto replica = static_cast<std::size_t>(context != nullptr ? context->local_replica_id() : update);
  if (replica >= count)
    throw Error(ErrorCode::kInvalidArgument, str("a ", kind, " of ", count, " components is used in replica ", replica,
                                                 "; it was made by a strategy with fewer replicas"));
  return replica;
}

std::size_t component_or_first(std::size_t count) noexcept {
  const ReplicaContext* context = current_mode().context;
  const auto replica = static_cast<std::size_t>(context != nullptr ? context->local_replica_id() : 0);
  return replica < count ? replica : 0;
}

std::size_t require_component(std::size_t index, std::size_t count, const char* kind) {
  if (index < count) return index;
  throw Error(ErrorCode::kInvalidArgument,
              str("component ", index, " of a ", kind, " with ", count, " components; there is one for each replica, from 0"));
}

}  // namespace internal

ReplicaContext* get_replica_context() noexcept {
  const auto mode = internal::current_mode();
  return mode.replicas == nullptr ? &default_state().context : mode.context;
}

ReplicaContext& replica_context() {
  if (ReplicaContext* context = get_replica_context()) return *context;
  throw Error(ErrorCode::kFailedPrecondition,
              "this needs a replica, and here is cross-replica context; call it inside the function given to run()");
}

bool in_cross_replica_context() noexcept {
  const auto mode = internal::current_mode();
  return mode.replicas != nullptr && mode.context == nullptr;
}

void ReplicaContext::require_current(const char* what) const {
  const ReplicaContext* current = get_replica_context();
  if (current == this) return;
  if (current == nullptr)
    throw Error(ErrorCode::kFailedPrecondition, str(what, " was called in cross-replica context; call it inside run()"));
  const bool is_outside = &current->replicas() == &internal::default_replicas();
  throw Error(
      ErrorCode::kFailedPrecondition,
      str(what, " was called with the ReplicaContext of replica ", local_replica_id_, " on ",
          is_outside ? str("a thread that is in no replica") : str("the thread of replica ", current->local_replica_id()),
          "; use it inside its run(), on the replica's own thread"));
}

void ReplicaContext::require_same_structure(const char* what, const internal::LeafList& leaves,
                                            const CommunicationOptions& options) {
  options.validate();
  const Rendezvous::TimeoutScope timeout(options.timeout());
  if (leaves.branches.empty() || &replicas_ == &internal::default_replicas()) return;
  const auto all = replicas_.group(local_replica_id_).all_gather(at::scalar_tensor(leaves.structure(), at::kLong));
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r].item<std::int64_t>() != all[0].item<std::int64_t>())
      throw Error(ErrorCode::kInvalidArgument,
                  str(what, ": replica 0 and replica ", r, " gave structures that differ (here: ", join(", ", leaves.branches),
                      "); every replica must give the same lengths and keys"));
}

void ReplicaContext::all_reduce_leaves(ReduceOp op, const std::vector<at::Tensor*>& dense,
                                       const std::vector<IndexedSlices*>& sparse, const CommunicationOptions& options) {
  options.validate();
  if (&replicas_ == &internal::default_replicas()) return;
  Group& group = replicas_.group(local_replica_id_);
  const auto all = replicas_.options().communication.merged_with(options);
  const Rendezvous::TimeoutScope timeout(options.timeout());
  std::vector<at::Tensor> inputs;
  std::vector<std::int64_t> bytes;
  for (const at::Tensor* leaf : dense) {
    require_dense(*leaf, "all_reduce");
    inputs.push_back(in_memory(op == ReduceOp::kMean ? without_overflow(*leaf) : *leaf));
    bytes.push_back(inputs.back().numel() * static_cast<std::int64_t>(inputs.back().element_size()));
  }
  auto leaf = dense.begin();
  auto input = inputs.begin();
  for (const auto count : group_by_size(bytes, all.bytes_per_pack)) {
    for (auto& output : internal::differentiable_all_reduce(group, op, {input, input + count})) **leaf++ = std::move(output);
    input += count;
  }
  for (IndexedSlices* slices : sparse) {
    slices->validate();
    slices->values = concatenate_values(group.all_gather(slices->values), 0);
    slices->indices = at::cat(group.all_gather(slices->indices), 0);
    if (op == ReduceOp::kMean) slices->values = mean_of_sum(slices->values, num_replicas_in_sync());
  }
}

void ReplicaContext::all_reduce_(ReduceOpArg op, at::Tensor& value) {
  require_current("all_reduce_");
  require_dense(value, "all_reduce_");
  if (needs_gradient(value))
    throw Error(ErrorCode::kInvalidArgument,
                "all_reduce_: the value needs a gradient; use all_reduce, which is differentiable");
  if (!value.is_non_overlapping_and_dense())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("all_reduce_: the value has shape ", value.sizes(), " and strides ", value.strides(),
                              ", with gaps or overlaps; pass value.contiguous()"));
  if (op == ReduceOp::kMean && at::isIntegralType(value.scalar_type(), /*includeBool=*/true))
    throw Error(ErrorCode::kInvalidArgument,
                "all_reduce_: a mean of integers is float64 and cannot be put in place; use all_reduce, or SUM");
  if (num_replicas_in_sync() == 1) return;
  replicas_.group(local_replica_id_).all_reduce({&value, 1}, {&value, 1});
  if (op == ReduceOp::kMean) value.div_(num_replicas_in_sync());
}

at::Tensor ReplicaContext::all_gather_leaf(const at::Tensor& value, std::int64_t axis, const CommunicationOptions& options) {
  options.validate();
  const Rendezvous::TimeoutScope timeout(options.timeout());
  require_dense(value, "all_gather");
  if (&replicas_ == &internal::default_replicas()) return value;
  return internal::differentiable_all_gather(replicas_.group(local_replica_id_), value, axis);
}

void ReplicaContext::barrier() {
  require_current("barrier");
  if (&replicas_ != &internal::default_replicas()) replicas_.group(local_replica_id_).barrier("barrier");
}

}  // namespace lockstep
