#include "lockstep/replica/mode.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep::internal {
namespace {

thread_local Mode t_mode;
thread_local int t_depth = 0;
thread_local int t_update_replica = -1;

}  // namespace

Mode current_mode() noexcept { return t_mode; }

int mode_depth() noexcept { return t_depth; }

ModeGuard::ModeGuard(Mode mode) : previous_(t_mode) {
  t_mode = mode;
  ++t_depth;
}
ModeGuard::~ModeGuard() {
  t_mode = previous_;
  --t_depth;
}

int current_update_replica() noexcept { return t_update_replica; }

UpdateGuard::UpdateGuard(int replica) : previous_(t_update_replica) { t_update_replica = replica; }
UpdateGuard::~UpdateGuard() { t_update_replica = previous_; }

void throw_mixed_strategies(const char* what) {
  throw Error(ErrorCode::kFailedPrecondition,
              str(what,
                  ": mixing different Strategy objects: it belongs to another strategy than the one that is current "
                  "here; make it and use it under one strategy"));
}

int local_replica_of(const ReplicaSet* replicas, const char* what) {
  if (t_mode.replicas != nullptr && t_mode.replicas != replicas) throw_mixed_strategies(what);
  if (t_mode.context != nullptr) return t_mode.context->local_replica_id();
  return t_update_replica;
}

}  // namespace lockstep::internal
