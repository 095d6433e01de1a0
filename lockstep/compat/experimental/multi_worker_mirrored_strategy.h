#pragma once

#include <memory>
#include <utility>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/collective/communication_options.h"
#include "lockstep/strategy/multi_worker_mirrored_strategy.h"

// The older names of tf.distribute.experimental. Each names the one thing of today.

namespace lockstep::experimental {

using lockstep::CollectiveCommunication;
using lockstep::CommunicationImplementation;
using lockstep::CommunicationOptions;
using lockstep::ValueContext;
// Of bytes_per_pack and timeout_seconds: all_reduce, reduce_to and batch_reduce_to take them as their options.
using lockstep::CollectiveHints;

// lockstep::MultiWorkerMirroredStrategy with its older arguments. (In Python each class counts as the other; here this one is
// derived.)
class MultiWorkerMirroredStrategy : public lockstep::MultiWorkerMirroredStrategy {
 public:
  explicit MultiWorkerMirroredStrategy(CollectiveCommunication communication = CollectiveCommunication::kAuto,
                                       std::shared_ptr<const ClusterResolver> cluster_resolver = nullptr);

  // run(fn, args...).
  template <typename F, typename... Args>
  auto experimental_run_v2(F&& fn, const Args&... args) {
    return run(std::forward<F>(fn), args...);
  }
};

}  // namespace lockstep::experimental
