#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/ps/memory.h"
#include "lockstep/ps/store.h"
#include "lockstep/ps/sync_messages.h"
#include "lockstep/ps/uploads.h"

namespace lockstep::ps {

// Gradients that wait for their step: a server's part of Note [synchronous steps]. A step is one update of each variable, by
// the mean of what counts:
// - dense gradients are added up in the tree of tree_sum.h over the contributions in their order; one that has none for a
//   variable counts as zero.
// - rows are those of all contributions, one after the other, each divided by the number of contributions.
// - assigned values (a module's buffers): their mean; of integers, the first contribution's.
// Thread-safe.
class HeldGradients {
 public:
  // `store` must outlive it. `most_bytes`: of what is held; 0: what the machine has.
  explicit HeldGradients(VariableStore& store, std::size_t most_bytes = 0);
  ~HeldGradients();
  HeldGradients(const HeldGradients&) = delete;
  HeldGradients& operator=(const HeldGradients&) = delete;

  std::map<std::string, Method> methods();

  // Looked at as an update is; throws what that throws, and kInvalidArgument for other operations than gradients and values to
  // assign. One that comes again replaces the first, which was the same.
  StepHoldReply hold(const StepHoldRequest& request, Incoming& payload);
  // Nothing, when it was applied before. Throws kDeadlineExceeded when another call that applies it does not come to an end.
  void apply(const StepApplyRequest& request);

  std::size_t held() const;  // contributions

 private:
  struct Held;
  struct Model;

  Held read(const StepHoldRequest& request, Incoming& payload);
  Model& model_of(const std::string& name);  // with mu_ held
  void update(const Model& model, std::uint64_t step, const std::vector<const Held*>& counted);

  // Const after construction.
  VariableStore& store_;
  const Handler update_;  // of the store

  // Own synchronisation. The memory outlives what counts in it.
  Memory memory_;
  Uploads uploads_;

  mutable std::mutex mu_;
  std::condition_variable applied_;
  // Guarded by mu_.
  std::map<std::string, Model> models_;
};

}  // namespace lockstep::ps
