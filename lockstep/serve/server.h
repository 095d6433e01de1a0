#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/coordination.h"

namespace lockstep {

struct ServerOptions {
  // All tasks have the same; "": LOCKSTEP_JOB_SECRET.
  std::string secret = "";
  // None: LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY, else plain connections.
  TlsFiles tls = {};
  // Of a parameter server: what its variables and their optimizers may take; 0: what the machine has.
  std::size_t most_bytes = 0;
  // Of a worker: what strategy.run() in its closures computes on, a replica each ("GPU:0", "CPU:1"). None: all GPUs, else the
  // CPU. All workers have as many.
  std::vector<std::string> devices = {};
  // Of a worker: how long a read or write of a variable is tried, over connections that break and servers that come back.
  std::chrono::nanoseconds call_timeout = std::chrono::minutes(1);
  // Where Prometheus may ask for the task's numbers: see MetricsEndpoint. "": LOCKSTEP_METRICS, "9464" or "0.0.0.0:9464", to
  // whose port the task's number in the cluster is added (the chief's is 0, then come workers and parameter servers); without
  // that, nowhere.
  std::string metrics = "";
  // Of a parameter server: the folder where it keeps snapshots, one below it for each server; see serve/snapshots.h. "":
  // LOCKSTEP_SNAPSHOT_FOLDER, and where that is not set there are none.
  std::string snapshot_folder = "";
  // How often. 0: LOCKSTEP_SNAPSHOT_SECONDS, else every minute.
  std::chrono::nanoseconds snapshot_every = {};
};

// A parameter server, or a worker that does what a coordinator schedules. Serves at its address in the cluster from its
// construction to its end, whether there is a coordinator or not: one that comes back finds the variables. A parameter server
// that is started again has the variables of its last snapshot before it serves, where it keeps some; without, it has none.
class Server {
 public:
  // `cluster_resolver` null: what the environment describes. Throws kInvalidArgument when this task is no ps and no worker of a
  // cluster with parameter servers, kFailedPrecondition when it cannot listen at its address.
  explicit Server(std::shared_ptr<const ClusterResolver> cluster_resolver = nullptr, const ServerOptions& options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // "/job:ps/task:0"
  const std::string& name() const noexcept;
  // Where Prometheus is answered; 0: nowhere.
  int metrics_port() const noexcept;

  // Returns after stop(). A signal ends the process, as it does any other.
  void join();
  void stop() noexcept;  // thread-safe

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For the top of main(), in a program that all tasks of a job run: when the environment says that this one is a parameter
// server, or a worker beside parameter servers, it serves until the process is ended. False: it is the coordinator, or there
// are no parameter servers; go on. Servers and workers of one host divide its cores for LibTorch's operations, unless
// OMP_NUM_THREADS is set; a worker keeps freed memory for the next step, unless LOCKSTEP_MALLOC=system is.
bool run_role_if_server(const ServerOptions& options = {});

}  // namespace lockstep
