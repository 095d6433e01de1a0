#pragma once

#include "lockstep/fwd.h"

// Where a thread stands: the stack of modes behind get_strategy(), in_cross_replica_context() and the rest.

namespace lockstep::internal {

// Exactly one of: inside a replica (context set), or in cross-replica context (context null).
struct Mode {
  ReplicaSet* replicas = nullptr;  // the strategy's; null: nothing was entered on this thread
  ReplicaContext* context = nullptr;
};

// The innermost mode of the calling thread; {null, null} when the stack is empty.
Mode current_mode() noexcept;

// How many modes are on the calling thread's stack.
int mode_depth() noexcept;

// Pushes a mode for the life of the object. Objects are destroyed in reverse order, on the thread that made them.
class ModeGuard {
 public:
  explicit ModeGuard(Mode mode);
  ~ModeGuard();
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  Mode previous_;
};

// Inside update(): the component that is being updated; -1 outside.
int current_update_replica() noexcept;

class UpdateGuard {
 public:
  explicit UpdateGuard(int replica);
  ~UpdateGuard();
  UpdateGuard(const UpdateGuard&) = delete;
  UpdateGuard& operator=(const UpdateGuard&) = delete;

 private:
  int previous_;
};

// The id of the replica that the calling thread runs for `replicas`: in a replica its id, in update() the component's,
// otherwise -1 (cross-replica, or no scope). Throws kFailedPrecondition when another strategy is current.
// `what` names the thing that is used, for the message.
int local_replica_of(const ReplicaSet* replicas, const char* what);

[[noreturn]] void throw_mixed_strategies(const char* what);

}  // namespace lockstep::internal
