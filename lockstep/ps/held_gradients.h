#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/ps/change_order.h"
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
  // `store` must outlive it. `most_bytes`: of what is held; 0: what the machine has. `order`: of the store's changes, where it
  // is replicated; then what is held is a change, too, and steps are applied one after the other.
  explicit HeldGradients(VariableStore& store, std::size_t most_bytes = 0, ChangeOrder* order = nullptr);
  ~HeldGradients();
  HeldGradients(const HeldGradients&) = delete;
  HeldGradients& operator=(const HeldGradients&) = delete;

  std::map<std::string, Method> methods();

  // Looked at as an update is; throws what that throws, and kInvalidArgument for other operations than gradients and values to
  // assign. One that comes again replaces the first, which was the same.
  StepHoldReply hold(const StepHoldRequest& request, Incoming& payload);
  // Nothing, when it was applied before. Throws kDeadlineExceeded when another call that applies it does not come to an end;
  // where it is replicated, kUnavailable while an earlier step may still come.
  void apply(const StepApplyRequest& request);

  // Does hold() of another server again: a StepHoldRequest.
  void redo(Incoming& request);
  // What waits, and the change by which another server gets it, while no change is done.
  struct Held;
  struct Waiting {
    StepHoldRequest request = {};  // without a sender
    std::shared_ptr<const Held> held = nullptr;
  };
  std::vector<Waiting> waiting() const;
  static Change copy_of(const Waiting& one, const Sender& sender);

  std::size_t held() const;  // contributions

  static constexpr std::chrono::seconds kEarlierStep{10};  // how long one is waited for

 private:
  struct Model;
  enum class From { kClient, kOtherServer };

  Held read(const StepHoldRequest& request, Incoming& payload, From from);
  StepHoldReply keep(const StepHoldRequest& request, const std::shared_ptr<const Held>& held);
  void require_room(const StepHoldRequest& request, const Model& model) const;
  void require_next(const StepApplyRequest& request, Model& model) const;
  Model& model_of(const std::string& name);  // with mu_ held
  void update(const Model& model, std::uint64_t step, const std::vector<const Held*>& counted);

  // Const after construction.
  VariableStore& store_;
  ChangeOrder* const order_;
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
