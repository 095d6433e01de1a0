#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/collective/communication_options.h"
#include "lockstep/collective/device_engine.h"
#include "lockstep/collective/worker_group.h"

namespace lockstep {

struct JobOptions {
  CommunicationOptions communication = {};
  // "auto", or what carries the bytes: "shm" (one machine), "gloo", "mpi".
  std::string engine = "auto";
  // Whether tensors on GPUs have an engine of their own.
  DeviceWish device_engine = DeviceWish::kAuto;
  // Sums in the canonical order, so that they have the same bits on any number of workers. Off: the engine's own between
  // machines.
  bool is_deterministic = true;
  // After so long in a collective a worker says who is late.
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(5);
  // How long workers wait for each other at the start.
  std::chrono::nanoseconds join_timeout = std::chrono::minutes(10);
  // The job's secret: all workers have the same. "": LOCKSTEP_JOB_SECRET of the environment.
  std::string secret = "";
  // "": LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE and LOCKSTEP_TLS_KEY of the environment.
  TlsFiles tls = {};
};

// What a worker brings to the job.
struct WorkerFacts {
  int replicas = 1;
  std::uint64_t seed = 0;
  // The GPUs of its replicas, the first one's first; none: a replica is on the CPU.
  std::vector<int> gpus = {};
};

// This process as one worker of a cluster: found the others, connected to them, watches them. Its destructor says
// good-bye.
class Job {
 public:
  // Waits until all workers are there. Throws kInvalidArgument for a task that is no worker of the cluster,
  // kDeadlineExceeded naming who is missing, kUnavailable, kUnimplemented for an engine that is not there.
  Job(const ClusterResolver& resolver, const WorkerFacts& mine, const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::shared_ptr<WorkerGroup>& workers() const noexcept;
  // Of worker 0.
  std::uint64_t seed() const noexcept;
  // On this machine, of all its workers, whatever carries their bytes.
  int replicas_of_machine() const;
  // One line: which engine carries what, and why.
  const std::string& engine_choice() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
