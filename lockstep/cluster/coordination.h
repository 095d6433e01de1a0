#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/cluster/address.h"
#include "lockstep/cluster/cluster_spec.h"
#include "lockstep/cluster/members.h"

// The service through which the tasks of a cluster find each other, wait for each other, and hear of each other's end. It
// carries a few small messages, never tensors.

namespace lockstep {

// PEM files; empty: plain connections.
struct TlsFiles {
  std::string certificate_authority = "";
  std::string certificate = "";
  std::string key = "";

  // LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE and LOCKSTEP_TLS_KEY; "" where they are not set.
  static TlsFiles from_environment();

  bool is_given() const { return !certificate_authority.empty() || !certificate.empty() || !key.empty(); }
};

struct CoordinationOptions {
  std::string secret = "";
  TlsFiles tls = {};
  // How long a task waits for the coordinator to come up and for its own admission.
  std::chrono::nanoseconds join_timeout = std::chrono::minutes(10);
  // How long the coordinator's destructor waits for the others to say good-bye, so that a clean end is one for all.
  std::chrono::nanoseconds farewell = std::chrono::seconds(5);
};

// Serves until it is destroyed. On the chief, or worker 0.
class CoordinationServer {
 public:
  // `expected` are the tasks that take part. Throws kFailedPrecondition when it cannot listen, kInvalidArgument for
  // certificates that cannot be read, kUnimplemented in a build without gRPC.
  CoordinationServer(const Address& listen_on, const ClusterSpec& spec, std::vector<Task> expected,
                     const CoordinationOptions& options = {});
  ~CoordinationServer();
  CoordinationServer(const CoordinationServer&) = delete;
  CoordinationServer& operator=(const CoordinationServer&) = delete;

  int port() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One task's end. Thread-safe.
class CoordinationClient {
 public:
  // Waits for the coordinator, registers, and keeps in touch on threads of its own. `on_failure` is called once, on one of
  // those, as soon as the cluster has failed. Throws kDeadlineExceeded naming the coordinator's address, and what the
  // coordinator refuses with.
  CoordinationClient(const Address& coordinator, const ClusterSpec& spec, const Task& task,
                     const CoordinationOptions& options = {}, std::function<void(const Failure&)> on_failure = nullptr);
  ~CoordinationClient();  // says good-bye
  CoordinationClient(const CoordinationClient&) = delete;
  CoordinationClient& operator=(const CoordinationClient&) = delete;

  // Waits are cut at a day.
  void put(const std::string& key, const std::string& value);
  std::string get(const std::string& key, std::chrono::nanoseconds timeout);
  void barrier(const std::string& name, std::chrono::nanoseconds timeout);

  // What others are told about this task; sent with the next heartbeat, and with the good-bye.
  void set_activity(const Activity& activity);

  // What the coordinator's clock shows minus what this machine's does, from the heartbeats; zero before the first.
  std::chrono::nanoseconds clock_offset() const;

  // Tells everybody that this task cannot go on.
  void fail(ErrorCode code, const std::string& message);

  // The first failure that was heard of; nothing: none so far.
  std::optional<Failure> failure() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All tasks that a coordinator knows, and the failure, if there was one. Throws kUnavailable, kDeadlineExceeded.
struct ClusterView {
  std::vector<Member> members;
  std::optional<Failure> failure;
};
ClusterView inspect_cluster(const Address& coordinator, std::chrono::nanoseconds timeout, const TlsFiles& tls = {});

// What this build of Lockstep is: tasks of one cluster must have the same.
std::string build_name();

}  // namespace lockstep
