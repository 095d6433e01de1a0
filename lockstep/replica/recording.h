#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/device/device_graph.h"
#include "lockstep/device/replica_streams.h"
#include "lockstep/fwd.h"

namespace lockstep {

// What somebody who takes part in a recorded step does on the host each time the step is done again; each may be null.
struct ReplayPart {
  // False: what the recorded work uses has changed in a way that it does not follow; the step is recorded again.
  std::function<bool()> is_current = nullptr;
  // Writes to the device what changes from step to step (a learning rate), before the work is queued.
  std::function<void()> before = nullptr;
  // Counts what was done, after it.
  std::function<void()> after = nullptr;
  // Takes back what was counted while the step was recorded: nothing was done yet.
  std::function<void()> undo = nullptr;
  // Kept as long as the recording.
  std::shared_ptr<const void> owner = nullptr;
};

// The work of one step of all replicas of a process, on one GPU.
//
// Note [recorded steps]
// 1. The first calls with arguments of one signature run as they are: libraries choose their algorithms, optimizers make
//    their state. Their results count: nothing is done twice.
// 2. Then the step is recorded. All replicas run the function, their streams joined to one DeviceGraph, and nothing is
// computed.
//    What host code does in the function is done this once, with arguments that are the recording's own tensors.
// 3. Now, and in every later call with that signature, the recorded work is queued, on the caller's stream, by one call; no
//    replica's thread takes part. It begins with copies of the arguments into those tensors. Its results are handed out where
//    they are, and copied when the next call comes, if somebody still has them then.
// 4. Who has state on the host that changes with each step adds a ReplayPart while the step is recorded: optimizers (steps,
//    learning rates), models (where their weights are, whether they train).
// 5. What host code has counted while it was recorded is taken back. A step that cannot be recorded leaves nothing behind: the
//    graph is abandoned when all replicas have stopped, and the step runs as it is. Why is said once.
class Recording {
 public:
  explicit Recording(ReplicaSet& replicas);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Before the run(): the work begins with copies of these tensors, all dense, into those, which the function gets. And before
  // each replay() the ones that are copied then, of the same shapes.
  void set_inputs(std::vector<at::Tensor> from, const std::vector<at::Tensor>& to);
  void set_inputs(std::vector<at::Tensor> from);

  // In a replica's function, around what is recorded. All replicas.
  void begin(int replica);
  void end(int replica);
  // When all replicas have stopped, on the thread that called run(): in place of an end() that has not come.
  void abandon() noexcept;

  // After run(): what was counted is taken back.
  void take_back();
  // After a run() that has failed: "at 'aten::item': ", the last operation before something could not be recorded.
  std::string last_operation() const;

  // Thread-safe. In the order of their coming; the second before all others.
  void add(ReplayPart part);
  void add_first(ReplayPart part);
  // The first time `user` asks.
  bool is_first_use_of(const void* user);

  bool is_current() const;
  // On the thread that calls it; the caller's stream gets the work.
  void replay();

  class Operations;

 private:
  enum class Phase { kNew, kBegun, kEnded, kAbandoned };

  void barrier(int replica, const char* name) const;

  // Const after construction.
  ReplicaSet& replicas_;

  // Used only on the thread that calls run().
  DeviceGraph graph_;
  std::vector<at::Tensor> from_;  // kept until the next: what is queued reads them
  std::vector<at::Tensor> to_;
  Phase phase_ = Phase::kNew;
  std::unique_ptr<Operations> operations_;

  // Guarded by mu_ while it is recorded; const afterwards.
  std::mutex mu_;
  std::vector<ReplayPart> parts_;
  std::set<const void*> users_;
};

}  // namespace lockstep
