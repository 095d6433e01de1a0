#pragma once

#include <memory>
#include <utility>

#include "lockstep/fwd.h"
#include "lockstep/replica/mode.h"
#include "lockstep/variable/variable.h"

namespace lockstep {

// While it lives, its strategy is current on the thread that made it. Destroy in reverse order of making; a scope of
// the same strategy may be made again inside.
class [[nodiscard]] Scope {
 public:
  Scope(Scope&&) noexcept = default;
  Scope& operator=(Scope&&) = delete;
  ~Scope() = default;

 private:
  friend class Strategy;
  Scope() = default;
  void enter(std::shared_ptr<ReplicaSet> replicas) {
    mode_ = std::make_unique<internal::ModeGuard>(internal::Mode{replicas.get(), nullptr});
    replicas_ = std::move(replicas);
  }

  std::shared_ptr<ReplicaSet> replicas_;                   // what mode_ points to
  std::unique_ptr<internal::ModeGuard> mode_;              // null: the default strategy's
  std::unique_ptr<internal::DefaultScope> default_scope_;  // the default strategy's only
};

}  // namespace lockstep
