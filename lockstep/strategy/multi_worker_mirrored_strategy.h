#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/collective/job.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_devices.h"

namespace lockstep {

struct MultiWorkerOptions {
  CommunicationOptions communication = {};
  // This worker's devices; none: every GPU, else CPU:0. Workers may have different numbers.
  std::vector<std::string> devices = {};
  // Several replicas may share every device: the same training on fewer devices and workers.
  int replicas_per_device = 1;
  // Cores that LibTorch may use inside one replica's operations; 0: the machine's cores divided by its replicas.
  // Sums inside an operation depend on it: set it to get the same bits on other machines.
  int intra_op_threads = 0;
  // Seed of the replicas' random generators (dropout, ...). Absent: worker 0's torch::manual_seed.
  std::optional<std::uint64_t> seed = std::nullopt;
  FreedMemory freed_memory = FreedMemory::kKeep;
  // "auto", or what carries the bytes: "shm" (one machine), "gloo", "mpi"; "nccl": what "auto" would take, and NCCL for tensors
  // on GPUs, or an error. LOCKSTEP_ENGINE of the environment comes before "auto".
  std::string engine = "auto";
  // Off: between machines the engine's own sums, whose order is its own.
  bool deterministic = true;
  // After so long in a collective a worker says who is late.
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(5);
  // How long workers wait for each other at the start.
  std::chrono::nanoseconds join_timeout = std::chrono::minutes(10);
  // All workers have the same; "": LOCKSTEP_JOB_SECRET.
  std::string secret = "";
  // Certificates of the coordination service; none: LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY, else plain.
  TlsFiles tls = {};
};

// Synchronous training on several workers, each with one or more replicas: MirroredStrategy over many processes and
// machines. The same program runs on every worker; variables start with worker 0's values, gradients are summed over all
// replicas of all workers in a fixed order, and every global batch is divided over all of them.
//
//   lockstep::MultiWorkerMirroredStrategy strategy;   // lockstep run -n 4 ./train
//
// Every worker makes the same calls in the same order: run() with its collectives, reduce, gather, reads across replicas of
// variables that are synchronised on read. A worker that is lost fails the others' calls with kUnavailable, naming it, from
// then on; one that is late is named in the log, and with kDeadlineExceeded after CommunicationOptions::timeout_seconds.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  // `cluster_resolver` null: what the environment describes (resolve_cluster), else this process alone. Blocks until all
  // workers are there. Throws as Job does: a described cluster is joined or an error.
  explicit MultiWorkerMirroredStrategy(std::shared_ptr<const ClusterResolver> cluster_resolver = nullptr,
                                       const MultiWorkerOptions& options = {});
  ~MultiWorkerMirroredStrategy() override;

  std::string name() const override { return "MultiWorkerMirroredStrategy"; }
  // Null: this process is alone.
  const ClusterResolver* cluster_resolver() const override { return resolver_.get(); }

  std::string task_prefix() const override;

  int num_workers() const noexcept;
  int worker_rank() const noexcept;
  // The worker that saves and reports: the chief, or worker 0.
  bool is_chief() const noexcept { return worker_rank() == 0; }

 private:
  struct Start;
  explicit MultiWorkerMirroredStrategy(Start start);

  std::shared_ptr<const ClusterResolver> resolver_;
  std::unique_ptr<Job> job_;  // null: alone
};

}  // namespace lockstep
