#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/cluster/socket.h"

namespace lockstep::testing {

// What comes until the other side closes.
inline std::string all_of(const internal::Socket& socket, std::chrono::seconds limit = std::chrono::seconds(20)) {
  std::string text;
  const auto deadline = Deadline::after(limit);
  while (socket.wait_readable(deadline)) {
    char buffer[4096];
    std::string why;
    const auto count = socket.receive(buffer, sizeof buffer, why);
    if (count == 0) return text;
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
  return text + "(not closed)";
}

// The answer of an endpoint of this machine; by itself, what Prometheus reads.
inline std::string scrape(int port, const std::string& request = "GET /metrics HTTP/1.1\r\n\r\n") {
  const auto deadline = Deadline::after(std::chrono::seconds(10));
  const auto socket = internal::Socket::connect({"127.0.0.1", port}, deadline);
  socket.send(request.data(), request.size(), deadline);
  return all_of(socket);
}

}  // namespace lockstep::testing
