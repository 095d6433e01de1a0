#include "tools/lockstep/coordination_options.h"

#include "lockstep/base/environment.h"

namespace lockstep::tool {

TlsFiles tls_from_environment() {
  const Environment environment;
  return {environment.get("LOCKSTEP_TLS_CA").value_or(""), environment.get("LOCKSTEP_TLS_CERTIFICATE").value_or(""),
          environment.get("LOCKSTEP_TLS_KEY").value_or("")};
}

CoordinationOptions coordination_options(std::chrono::nanoseconds join_timeout) {
  return {.secret = Environment().get("LOCKSTEP_JOB_SECRET").value_or(""),
          .tls = tls_from_environment(),
          .join_timeout = join_timeout};
}

}  // namespace lockstep::tool
