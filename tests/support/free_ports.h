#pragma once

#include <random>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/cluster/socket.h"

namespace lockstep::testing {

// Ports of 127.0.0.1 that nobody uses, below the range from which the system takes ports for outgoing connections. Held
// together until all are found, so that no two are equal.
inline std::vector<int> free_ports(int count) {
  std::random_device random;
  std::uniform_int_distribution<int> any(20000, 32000);
  std::vector<internal::Socket> held;
  std::vector<int> ports;
  while (static_cast<int>(ports.size()) < count) {
    try {
      held.push_back(internal::Socket::listen({"127.0.0.1", any(random)}));
      ports.push_back(held.back().port());
    } catch (const Error&) {  // in use
    }
  }
  return ports;
}

}  // namespace lockstep::testing
