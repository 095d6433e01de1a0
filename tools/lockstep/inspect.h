#pragma once

#include <iosfwd>
#include <string>

#include "lockstep/cluster/coordination.h"
#include "tools/lockstep/arguments.h"

namespace lockstep::tool {

// Prints what `lockstep inspect` was asked for: flight records, a job with parameter servers, or the members of a cluster.
void run_inspect(std::ostream& out, const InspectOptions& options);

// The cluster as a table, or as JSON.
void print_cluster(std::ostream& out, const ClusterView& view, bool as_json);

}  // namespace lockstep::tool
