#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/cluster/socket.h"

// Plain TCP between two tasks: does it get through, how fast, and what time is it there?

namespace lockstep::tool {

// Answers probes until it is destroyed, on a thread of its own, one after the other.
class ProbeServer {
 public:
  // Throws kFailedPrecondition naming the address when it cannot listen.
  explicit ProbeServer(const Address& address);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

  int port() const { return listener_.port(); }
  // Who does not know it is not answered.
  std::uint64_t token() const noexcept { return token_; }

 private:
  void serve(const std::stop_token& stop) const;

  const internal::Socket listener_;
  const std::uint64_t token_;
  std::jthread thread_;  // last: joined first
};

// The other end. All calls throw kUnavailable and kDeadlineExceeded.
class Probe {
 public:
  struct Times {
    std::chrono::nanoseconds round_trip;    // the shortest
    std::chrono::nanoseconds clock_offset;  // the other clock minus this one, by half of that at most wrong
  };

  Probe(const Address& address, std::uint64_t token, const Deadline& deadline);

  // The best of so many.
  Times ping(int rounds) const;
  // Bytes a second; each takes about half a second at most.
  double rate_there() const;
  double rate_back() const;

 private:
  const Deadline deadline_;
  internal::Socket socket_;
};

}  // namespace lockstep::tool
