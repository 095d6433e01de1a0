#pragma once

#include <memory>
#include <vector>

#include "lockstep/ps/call_target.h"

namespace lockstep::ps {

enum class Replication {
  kAsk,  // what the servers say
  kOff,
  kOn,
};

// The ways of a client to the groups of these servers, group g at place g: Note [replication]. A call goes to the server that
// is the group's primary, as far as it is known; one that fails makes the next ask who is. start() then waits for that, at most
// a second. Throws kDataLoss for a group that is lost.
std::vector<std::shared_ptr<CallTarget>> targets_of_groups(const std::vector<std::shared_ptr<CallTarget>>& servers,
                                                           Replication replication);

}  // namespace lockstep::ps
