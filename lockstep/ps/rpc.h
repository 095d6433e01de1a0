#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/cluster/address.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/ps/message.h"

// Calls between the tasks of a job, over gRPC with raw bytes: what is large is not copied into messages.

namespace lockstep::ps {

struct RpcOptions {
  std::string secret = "";  // of the job: who does not know it is refused (kFailedPrecondition), and nothing of his is read
  std::string build = build_name();  // the same: messages have no versions
  TlsFiles tls = {};
  // Of one message, on both sides; more is kInvalidArgument at the caller. A little less than 2 GB at most.
  std::size_t most_bytes = std::size_t{1} << 30;
  // Of a server: so many requests are worked on at a time. Others wait, up to 4096 of them or `most_bytes` of bytes: beyond
  // that the caller gets kUnavailable, "busy", and may try again later.
  int most_threads = 64;
  // Of memory that a channel shares with a server on its own machine: large payloads go through it, and are faster. Pages are
  // taken as they are needed. 0 on one of the two sides: everything goes through the socket.
  std::size_t shared_bytes = 64 << 20;
};

// How a method answers: it reads the request, and fills the reply or throws. An Error reaches the caller with its code and
// text, a lack of memory as kUnavailable, anything else as kInternal. Many run at the same time. Pieces of the reply are sent
// after the handler has returned: those without an owner are copied before.
using Handler = std::function<void(Incoming& request, Outgoing& reply)>;

// kQuick: runs on the thread that the request came on, and must not wait for anything. kMayWait: on a thread of its own.
enum class HandlerKind { kQuick, kMayWait };

struct Method {
  Handler handler;
  HandlerKind kind = HandlerKind::kMayWait;
};

// Answers until it is destroyed; the destructor refuses what comes, waits for the handlers that run, and returns.
class RpcServer {
 public:
  // Port 0 takes a free one. Throws kFailedPrecondition naming the address when it cannot listen, kInvalidArgument for
  // certificates that cannot be read, kUnimplemented in a build without gRPC.
  RpcServer(const Address& listen_on, std::map<std::string, Method> methods, const RpcOptions& options = {});
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A call that is under way. Destroyed before its end it is cancelled: the destructor waits until nobody reads the pieces of the
// request any more (at once, or 4 s when the server has vanished).
class PendingCall {
 public:
  struct State;
  PendingCall() = default;
  explicit PendingCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~PendingCall();
  PendingCall(PendingCall&&) noexcept = default;
  PendingCall& operator=(PendingCall&&) noexcept;

  // The reply. Once. Throws what the server's method threw; kUnavailable when the server cannot be reached or has gone
  // (whether the method ran is then unknown); kDeadlineExceeded; kCancelled. The text names the server.
  std::unique_ptr<Incoming> wait();
  // Also from another thread than that which waits.
  void cancel() noexcept;

 private:
  std::shared_ptr<State> state_;
};

// The way to one server. Connects when it is first used, and again when the connection is lost: calls fail with kUnavailable
// meanwhile, and a server that was started again is found within about a second. A machine that vanished is noticed in about
// 4 s. Thread-safe.
class RpcChannel {
 public:
  // `name` is the server's in texts: "/job:ps/task:0".
  RpcChannel(std::string name, const Address& address, const RpcOptions& options = {});
  ~RpcChannel();
  RpcChannel(const RpcChannel&) = delete;
  RpcChannel& operator=(const RpcChannel&) = delete;

  const std::string& name() const noexcept;
  // Whether large payloads go through memory now. The first calls, and those after a loss, do not.
  bool shares_memory() const;

  // Memory of pieces without an owner must stay until the call has ended. Throws kInvalidArgument for a request that is too
  // large, kDeadlineExceeded when the deadline has passed already; nothing was sent then.
  PendingCall start(const std::string& method, const Outgoing& request, const Deadline& deadline);
  std::unique_ptr<Incoming> call(const std::string& method, const Outgoing& request, const Deadline& deadline) {
    return start(method, request, deadline).wait();
  }
  // Waits until the server answers. Throws kDeadlineExceeded naming it, and kFailedPrecondition when it refuses us.
  void wait_until_reachable(const Deadline& deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::ps
