#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/trackable.h"

namespace lockstep {

class ParameterServerStrategy;
namespace ps {
struct Connections;
}

// The variables of a job on its parameter servers, with their optimizers' states, for Checkpoint::track:
//
//   Checkpoint checkpoint(strategy);
//   checkpoint.track("variables", server_part(strategy)).track("step", &step);
//   CheckpointManager manager(checkpoint, "/shared/backup");
//
// Every server writes and reads its own files, all at the same time, in the checkpoint's folder, which all of them must see; no
// value comes to the coordinator. Call coordinator.join() before: what closures do meanwhile is in the checkpoint or not,
// server by server. It is restored into any number of servers, divided in any way; into a model of one process under the same
// part's name, and from one: its weights then, and optimizers keep what they have. The values must be there to be restored:
// make the variables first. Where parts of a variable had different numbers of steps and become one, the highest counts.
//
// save() writes such a checkpoint before it returns, also where the manager is `async`. With `replication = 2` each variable is
// written once, by its primary, and when a server is lost meanwhile the other one writes. Without, that is kUnavailable; a
// server that does not see the folder is kFailedPrecondition. Nothing is left of the new checkpoint then.
std::shared_ptr<Trackable> server_part(const ParameterServerStrategy& strategy);

// Of these whole variables alone.
std::shared_ptr<Trackable> server_part(std::shared_ptr<ps::Connections> connections, std::vector<std::string> names);

}  // namespace lockstep
