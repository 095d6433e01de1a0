#pragma once

#include <memory>

#include "lockstep/base/environment.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

// The cluster that the environment describes: TF_CONFIG, torchrun's variables, mpirun's, Slurm's, a Kubernetes pod's, the
// first of them that is there, in this order. (mpirun inside a Slurm allocation leaves Slurm's variables of its own
// daemons to the program.) Says in the log what was found and where. Null: none describes one. Throws what the resolver
// throws when the description is not whole: a program never trains alone by accident.
std::shared_ptr<const ClusterResolver> resolve_cluster(const Environment& variables = {});

}  // namespace lockstep
