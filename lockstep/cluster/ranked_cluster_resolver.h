#pragma once

#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/cluster/cluster_resolver.h"

namespace lockstep {

// A cluster of equal workers that were started with a rank: all are tasks of job "worker". Base of the resolvers for
// launchers that tell no other address than worker 0's, or not even that.
class RankedClusterResolver : public ClusterResolver {
 public:
  ClusterSpec cluster_spec() const override { return spec_; }
  std::string master(const std::optional<std::string>& task_type = {}, std::optional<std::int64_t> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const override;
  std::string source() const override { return source_; }

 protected:
  struct Ranks {
    std::string source;
    std::int64_t rank;
    std::vector<std::string> addresses;  // "": not known yet
  };
  // Throws kFailedPrecondition unless the rank has an address.
  explicit RankedClusterResolver(const Ranks& ranks);

  // What the launchers' variables say. Throw kFailedPrecondition for one that is missing, kInvalidArgument for one that
  // is not a number.
  static Ranks torchrun_ranks(const Environment& variables);
  static Ranks mpi_ranks(const Environment& variables);
  static Ranks pod_ranks(const Environment& variables);

 private:
  const std::string source_;
  ClusterSpec spec_;
};

// Programs started by torchrun, and all that set its variables: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Where torchrun
// holds MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE=True), worker 0 is at the port after it.
class TorchrunClusterResolver : public RankedClusterResolver {
 public:
  explicit TorchrunClusterResolver(const Environment& variables = {}) : RankedClusterResolver(torchrun_ranks(variables)) {}
};

// Programs started by mpirun: Open MPI's OMPI_COMM_WORLD_RANK and _SIZE, or MPICH's and Intel's PMI_RANK and PMI_SIZE.
// Addresses are told through MPI itself.
class MpiClusterResolver : public RankedClusterResolver {
 public:
  explicit MpiClusterResolver(const Environment& variables = {}) : RankedClusterResolver(mpi_ranks(variables)) {}
};

// The pods of a Kubernetes StatefulSet or Indexed Job behind a headless service, from the pod's own environment: its host
// name (HOSTNAME) ends in its number, and LOCKSTEP_K8S_SERVICE, LOCKSTEP_K8S_REPLICAS and LOCKSTEP_K8S_PORT (8470) say the
// rest. No API server is asked.
class KubernetesClusterResolver : public RankedClusterResolver {
 public:
  explicit KubernetesClusterResolver(const Environment& variables = {}) : RankedClusterResolver(pod_ranks(variables)) {}
};

}  // namespace lockstep
