#pragma once

#include <functional>
#include <string>

#include "lockstep/collective/worker_group.h"

namespace lockstep::internal {

// The worker that writes; true without workers.
bool is_first(const WorkerGroup* workers);

// Calls `act` on every worker; all call it. When it fails on one of them all throw: that one its own error, the others one of
// the same code that names it. Returns the first worker's answer. `workers` null: only calls it.
std::string together(WorkerGroup* workers, const char* what, const std::function<std::string()>& act);

}  // namespace lockstep::internal
