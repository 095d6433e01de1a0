#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/call_target.h"
#include "lockstep/ps/store_messages.h"
#include "lockstep/ps/task_error.h"

// Many calls to several servers at once, repeated until they are answered. A client's own.

namespace lockstep::ps {

// A server as one client sees it: the client's half of Note [exactly once]. Thread-safe. A client is another one at each
// server, so that numbers of requests to one say nothing about another.
class Link {
 public:
  explicit Link(std::shared_ptr<CallTarget> target);

  CallTarget& target() const noexcept { return *target_; }
  const std::string& name() const noexcept { return target_->name(); }
  std::uint64_t client() const noexcept { return client_; }

  // The number of a request, which has no answer yet while it lives.
  class Ticket {
   public:
    Ticket(Link& link, std::uint64_t sequence) : link_(&link), sequence_(sequence) {}
    ~Ticket();
    Ticket(Ticket&& other) noexcept : link_(std::exchange(other.link_, nullptr)), sequence_(other.sequence_) {}
    Ticket& operator=(Ticket&&) = delete;

    Sender sender() const;

   private:
    Link* link_;
    std::uint64_t sequence_;
  };
  // So many, at most kMostTaken. Waits while too many are unanswered; throws kDeadlineExceeded naming the server. Who takes of
  // several servers does it in their order.
  std::vector<Ticket> take(std::size_t count, const Deadline& deadline);
  static constexpr std::size_t kMostTaken = 256;

 private:
  // Const after construction.
  const std::shared_ptr<CallTarget> target_;
  const std::uint64_t client_;

  std::mutex mu_;
  std::condition_variable answered_;
  // Guarded by mu_.
  std::uint64_t last_ = 0;
  std::set<std::uint64_t> unanswered_;
};

struct ServerCall {
  Link* link;
  const char* method;
  Outgoing request;
  std::function<void(Incoming& reply)> on_reply = nullptr;  // on the thread that waits
  std::optional<TaskError> error = std::nullopt;            // how it ended; the text names the server
  bool is_for_good = false;                                 // a PsUnavailable
};

struct CallOptions {
  std::chrono::nanoseconds one_try = std::chrono::seconds(10);
  int in_flight = 4;  // calls to one server at a time
};

// Makes all of them, in their order and some at a time for each server. One that ends with kUnavailable, or has no answer after
// `one_try`, is made again, until the deadline. Returns when all have ended, with or without an error.
void make_calls(std::vector<ServerCall>& calls, const CallOptions& options, const Deadline& deadline);

// Throws it: a TaskError when it is about the server, an Error when it is about what was asked for.
[[noreturn]] void throw_error(const TaskError& error);

// Throws the first of their errors.
void throw_if_any_failed(const std::vector<ServerCall>& calls);

}  // namespace lockstep::ps
