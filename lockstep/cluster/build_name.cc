#include "lockstep/cluster/coordination.h"

namespace lockstep {

std::string build_name() { return LOCKSTEP_BUILD_NAME; }

}  // namespace lockstep
