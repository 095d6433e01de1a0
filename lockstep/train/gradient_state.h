#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "lockstep/collective/bucket_exchange.h"
#include "lockstep/collective/bucket_plan.h"
#include "lockstep/collective/group.h"
#include "lockstep/train/gradient_reducer.h"
#include "lockstep/variable/gradient_hooks.h"

namespace lockstep {

enum class GradientKind : std::uint8_t { kNone, kDense, kSparse };

// Note [gradient step]
// 1. Before the first gradient of a step is accumulated, the gradients of the last step are dropped, so that LibTorch
//    hands over the new ones without adding.
// 2. After a gradient was accumulated, its hook settles it. A small one is moved into its slot of a bucket, unless it
//    is there already, and the parameter's grad shares that memory. A large one in the memory of the CPU stays where
//    LibTorch put it, unless something else uses that memory. When all of a bucket have come it is published.
// 3. synchronize(): a gradient that no hook has seen (set by hand, or of a parameter that was frozen) is taken; a planned
//    one that did not come counts as zero; all replicas meet; each sums its chunks and puts the rows of sparse gradients
//    together; all meet again.
// 4. The plan is made at the first synchronize(), from the gradients that came, and again when a new one comes:
//    a parameter whose gradient is sparse never gets a dense slot.
struct GradientReducer::State {
  static constexpr std::size_t kNoBucket = SIZE_MAX;

  struct Slot {
    at::Tensor parameter;
    at::Tensor gradient = {};  // over the bucket's memory; not defined: not planned, or summed where it is
    at::Tensor stale = {};     // what the last step left; any other gradient, or a written one, is this step's
    std::int64_t stale_version = 0;
    at::Tensor sparse_sum = {};  // between two meetings: what the gradient becomes
    std::size_t bucket = kNoBucket;
    bool has_gradient = false;                      // since the last step
    bool was_reached = false;                       // by any backward() so far
    int fired = 0;                                  // outside no_sync, since the last step
    std::vector<std::shared_ptr<void>> hooks = {};  // none: frozen
    const void* accumulator = nullptr;              // that they are on
    at::TensorOptions kind = {};                    // of the parameter, when they were

    // LibTorch forgets the hooks of a parameter that gets other memory: another dtype or device, or torch::load.
    bool has_lost_hooks() const {
      return !hooks.empty() && parameter.requires_grad() && internal::accumulator_of(parameter) != accumulator;
    }
    bool is_same_kind() const {
      return parameter.scalar_type() == c10::typeMetaToScalarType(kind.dtype()) && parameter.device() == kind.device();
    }
    bool is_planned() const { return bucket != kNoBucket; }
    bool is_direct() const { return is_planned() && !gradient.defined(); }
  };

  struct alignas(64) Replica {
    std::vector<Slot> slots;
    std::vector<GradientKind> kinds;  // read by all replicas between two meetings
    std::vector<int> missing;         // by bucket: members whose gradient has not come
    int no_sync = 0;
    std::uint64_t steps = 0;
    bool has_stale = false;  // gradients of the last step are still there
    bool is_synchronized = false;
    bool has_lost = false;  // gradients, by a failure in this run(); written while no replica computes
  };

  State(std::shared_ptr<ModuleReplicas> of, const GradientOptions& with);

  // While backward() runs (gradient_fill.cc).
  // Drops what the last step left. Throws kFailedPrecondition when that has become part of a new gradient.
  void before(std::size_t replica);
  // The last parameter of which it has, if any.
  std::optional<std::size_t> drop_stale(std::size_t replica);
  void after(std::size_t replica, std::size_t index, const at::Tensor& incoming);
  void settle(Slot& slot, const at::Tensor& incoming);  // makes the gradient one that can be summed
  void publish(std::size_t replica, const Slot& slot);
  void complete(std::size_t replica);  // every planned gradient is settled, every bucket published
  void fill_slots(std::size_t replica);

  // At a meeting, on replica 0's thread, while all others wait (gradient_plan.cc).
  void plan();
  // The buckets' buffers, [bucket][replica], and the exchange over them: in this process, or with other workers
  // (gradient_workers.cc).
  struct Buffers {
    std::vector<std::vector<at::Tensor>> mine;  // [bucket][local replica]; not defined: summed where they are
    std::unique_ptr<BucketExchange> exchange;
  };
  // `first`: by bucket, the parameter whose dtype and device it has.
  Buffers local_buffers(const std::vector<bool>& is_direct, const std::vector<std::size_t>& first) const;
  Buffers shared_buffers(const std::vector<std::size_t>& first) const;
  Buffers device_buffers(const std::vector<std::size_t>& first) const;
  bool can_be_planned(const at::Tensor& parameter) const;
  std::string plan_text() const;
  // All parameters, and the job has an engine for GPUs.
  bool is_on_gpus() const;
  WorkerGroup* workers() const;
  // All workers tell each other which gradients came; the meeting before the sums.
  void agree(ReplicaContext& context, Group& group);
  void require_equal_copies() const;
  void report_unused();

  // Between two meetings, on every replica (gradient_sum.cc).
  GradientKind kind_of_all(std::size_t index) const;
  GradientKind kind_here(std::size_t index) const;  // of this process's replicas
  bool has_new_gradient() const;
  void reduce_unplanned(std::size_t replica, Group& group);
  void reduce_dense(std::size_t replica, std::size_t index, Group& group);
  void reduce_sparse(std::size_t replica, std::size_t index, Group& group);
  void take_sparse_sums(std::size_t replica);

  void synchronize(std::size_t replica, ReplicaContext& context, Group& group);
  // Throws kFailedPrecondition when the replica's sums have begun.
  void require_unpublished(std::size_t replica) const;
  // Hooks a parameter that needs gradients, unless it has hooks already. Throws kFailedPrecondition when it got another dtype
  // or device.
  void watch(std::size_t replica, std::size_t index);
  void hook(std::size_t replica, std::size_t index);
  void rehook();  // before a run(): those that have lost their hooks since the last
  // Gives the gradients up: hooks are gone, synchronize() throws.
  void retire();
  // Gradients that no hook has seen: of parameters that were frozen until now, and those that the user has set.
  void take_unseen(std::size_t replica);
  // [begin, end): inside a replica it alone, outside run() all of them.
  std::pair<std::size_t, std::size_t> replicas_here() const;
  std::vector<std::string> unused() const;
  void begin_step(Replica& mine);
  void reset(std::uint64_t last_step = 0);
  void recover();  // before a run(): see Note [after a call that did not fit]
  void after_failed_run();
  void forget_losses();

  // Const after construction.
  const std::shared_ptr<ModuleReplicas> model;
  const GradientOptions options;
  std::vector<std::string> names;

  // Written at meetings by replica 0, while the others wait.
  std::unique_ptr<BucketExchange> exchange;
  std::vector<Bucket> buckets;
  std::uint64_t plans = 0;  // made so far
  bool can_overlap;
  std::vector<GradientKind> agreed_kinds;   // with other workers: of all
  std::vector<bool> was_reached_somewhere;  // with other workers: by parameter, in any step; empty: no step yet
  bool has_come_twice = false;              // a gradient in the first step, on any worker
  bool has_reported_unused = false;
  bool has_failed_run = false;      // with other workers: since the last recovery
  std::uint64_t failures_seen = 0;  // with other workers: of those that all had

  // [r] used only by replica r (kinds, and sparse gradients: see above).
  std::vector<Replica> replicas;

  // Used outside run() only: what keeps the calls around run(), and the model's gradients ours.
  bool is_retired = false;
  std::shared_ptr<void> observer;
  std::shared_ptr<void> place;
};

}  // namespace lockstep
