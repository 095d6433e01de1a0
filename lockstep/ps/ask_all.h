#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::ps {

struct Connections;

// A request that may take long, and can be done again by another server.
struct Question {
  const char* method = nullptr;
  // For each server; `tries` before this one have failed.
  std::function<std::string(std::size_t server, int tries)> fields = nullptr;
};

// Asks all servers at the same time, and waits for all; of replicated variables, the primary of each group, group g at place g,
// and when that one is lost the next one. The fields of their replies. Throws the first error: kUnavailable naming a server
// that is lost, kDataLoss for a group that is.
std::vector<std::string> ask_all(const Connections& connections, const Question& question, const Deadline& deadline);

}  // namespace lockstep::ps
