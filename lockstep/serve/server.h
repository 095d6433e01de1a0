#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

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

  // Returns after stop(). A signal ends the process, as it does any other.
  void join();
  void stop() noexcept;  // thread-safe

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For the top of main(), in a program that all tasks of a job run: when the environment says that this one is a parameter
// server, or a worker beside parameter servers, it serves until the process is ended. False: it is the coordinator, or there
// are no parameter servers; go on.
bool run_role_if_server(const ServerOptions& options = {});

}  // namespace lockstep
