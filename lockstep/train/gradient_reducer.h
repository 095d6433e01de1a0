#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collective/reduce_op.h"
#include "lockstep/fwd.h"
#include "lockstep/variable/module_replicas.h"

namespace lockstep {

// A CPU gradient of at least this size is summed alone, where LibTorch put it: from here on a copy into a bucket costs
// more than a hand-over of its own between the replicas.
inline constexpr std::int64_t kSummedInPlaceBytes = 32 << 10;

// How gradients are brought together.
struct GradientOptions {
  // SUM: the loss is divided by the global batch (compute_average_loss). MEAN: every replica's loss is its own mean,
  // and replicas count equally whatever their part of the batch.
  ReduceOp reduce = ReduceOp::kSum;
  // Buckets are summed while backward() still runs. Off: all at step().
  bool overlap = true;
  // The most bytes of a bucket. CPU gradients of kSummedInPlaceBytes or more are in none.
  std::int64_t bucket_bytes = 1 << 20;
  // On a GPU, SGD, Adam and AdamW update all parameters in a few operations (LibTorch's fused ones, whose last bits are others
  // than its optimizers'), which can be recorded: see Function. Parameters of one dtype each, no sparse gradients.
  bool fuses_updates = false;
};

// Brings a mirrored model's gradients together: hooks fill buckets while backward() runs, buckets are summed as soon as
// all replicas have filled them, synchronize() waits for the rest. Afterwards every replica's parameters have the same
// gradients, bit for bit. See Note [bucket exchange] and Note [gradient step].
class GradientReducer {
 public:
  GradientReducer(std::shared_ptr<ModuleReplicas> model, const GradientOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Called by every replica after its backward(). Throws kFailedPrecondition outside run().
  void synchronize();

  // The gradients have been used: the next backward() starts anew.
  void end_step();
  // Drops what has been accumulated: by this replica, outside run() by all.
  void discard();

  // While depth > 0 on a replica, its backward() only accumulates. Outside run(): on all replicas.
  void enter_no_sync();
  void exit_no_sync();

  // Parameters that no backward() has reached yet, by name.
  std::vector<std::string> unused_parameters() const;

  // For recorded steps, which know the buckets by their addresses: the number of the plan, and whether it is still the one that
  // is used, no gradient waits for its step, and no other optimizer has the gradients. Not while a replica computes.
  std::uint64_t plan_number() const;
  bool is_unchanged_since(std::uint64_t plan) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
