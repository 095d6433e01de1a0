#pragma once

#include <iosfwd>
#include <string>

#include "lockstep/cluster/coordination.h"

namespace lockstep::tool {

// The cluster as a table, or as JSON.
void print_cluster(std::ostream& out, const ClusterView& view, bool as_json);

}  // namespace lockstep::tool
