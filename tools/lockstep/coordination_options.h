#pragma once

#include <chrono>

#include "lockstep/cluster/coordination.h"

namespace lockstep::tool {

// LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE and LOCKSTEP_TLS_KEY.
TlsFiles tls_from_environment();

// With LOCKSTEP_JOB_SECRET too.
CoordinationOptions coordination_options(std::chrono::nanoseconds join_timeout);

}  // namespace lockstep::tool
