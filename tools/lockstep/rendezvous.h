#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/address.h"
#include "tools/lockstep/agent.h"
#include "tools/lockstep/printer.h"
#include "tools/lockstep/remote_node.h"
#include "tools/lockstep/signals.h"

// How the launchers of several machines, each started by hand or by a scheduler, become one: that of node 0 leads, the
// others connect to it and serve it (Note [launcher and nodes]).

namespace lockstep::tool {

struct MeetingOptions {
  Address at = {};  // of node 0
  int nodes = 1;
  std::string secret = "";
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  std::chrono::nanoseconds lost_after = kLostAfter;
};

// A node that came.
struct Guest {
  Hello hello;
  std::string address;  // where others reach it
  std::unique_ptr<RemoteNode> node;
};

// On node 0: waits for nodes 1, 2, ..., and gives them in this order; none when a signal asked for the end. Who does not fit
// is told why. Throws kFailedPrecondition when it cannot listen, kDeadlineExceeded naming who is missing.
std::vector<Guest> wait_for_nodes(const MeetingOptions& meeting, const Signals& signals, Printer& printer);

// On another node: connects to node 0 and serves it. Returns the exit status of the job. Throws kDeadlineExceeded.
int join_launcher(const MeetingOptions& meeting, const Hello& hello, const OwnWork& own, Printer& printer);

}  // namespace lockstep::tool
