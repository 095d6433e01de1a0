#include "lockstep/device/blas.h"

#include <link.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

struct Found {
  bool any_fast = false;
  bool reference = false;
};

int inspect(dl_phdr_info* info, std::size_t, void* data) {
  auto& found = *static_cast<Found*>(data);
  char resolved[PATH_MAX];
  const char* name = realpath(info->dlpi_name, resolved);  // Debian's alternatives are links
  if (name == nullptr) return 0;
  if (std::strstr(name, "openblas") != nullptr || std::strstr(name, "mkl") != nullptr) found.any_fast = true;
  if (std::strstr(name, "libblas.so") != nullptr) found.reference = true;
  return 0;
}

}  // namespace

bool has_slow_blas() {
  Found found;
  dl_iterate_phdr(inspect, &found);
  return found.reference && !found.any_fast;
}

void warn_about_slow_blas() {
  if (has_slow_blas())
    log_once(LogLevel::kWarning,
             "LibTorch uses the reference BLAS, which is many times slower than OpenBLAS: apt-get install libopenblas0-openmp");
}

}  // namespace lockstep
