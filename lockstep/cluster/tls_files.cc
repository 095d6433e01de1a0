#include "lockstep/base/environment.h"
#include "lockstep/cluster/coordination.h"

namespace lockstep {

TlsFiles TlsFiles::from_environment() {
  const Environment environment;
  return {environment.get("LOCKSTEP_TLS_CA").value_or(""), environment.get("LOCKSTEP_TLS_CERTIFICATE").value_or(""),
          environment.get("LOCKSTEP_TLS_KEY").value_or("")};
}

}  // namespace lockstep
