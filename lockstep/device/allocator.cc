#include "lockstep/device/allocator.h"

#include <malloc.h>

#include <climits>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/device/tensor_allocator.h"

namespace lockstep {

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (Environment().get("LOCKSTEP_MALLOC") == "system") return;
    // The three belong together: the trim threshold alone makes things worse.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
    allocate_tensors_with_malloc();
    log_info(
        "tensors come from malloc, and glibc keeps what they free (the strategy's option freed_memory or "
        "LOCKSTEP_MALLOC=system to "
        "change)");
  });
}

}  // namespace lockstep
