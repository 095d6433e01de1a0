#include "tools/lockstep/coordination_options.h"

#include "lockstep/base/environment.h"

namespace lockstep::tool {

CoordinationOptions coordination_options(std::chrono::nanoseconds join_timeout) {
  return {.secret = Environment().get("LOCKSTEP_JOB_SECRET").value_or(""),
          .tls = TlsFiles::from_environment(),
          .join_timeout = join_timeout};
}

}  // namespace lockstep::tool
