#include "lockstep/compat/experimental/multi_worker_mirrored_strategy.h"

#include <ATen/ATen.h>

namespace lockstep::experimental {

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(CollectiveCommunication communication,
                                                         std::shared_ptr<const ClusterResolver> cluster_resolver)
    : lockstep::MultiWorkerMirroredStrategy(std::move(cluster_resolver), {.communication = {.implementation = communication}}) {
}

}  // namespace lockstep::experimental
