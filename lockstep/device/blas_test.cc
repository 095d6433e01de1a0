#include "lockstep/device/blas.h"

#include <fstream>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::LogCapture;

// The names of the files this process has mapped, which the system knows with all links followed.
bool has_mapped(const std::string& part) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

TEST(Blas, IsSlowWhenOnlyTheReferenceImplementationIsLoaded) {
  const bool is_fast = has_mapped("openblas") || has_mapped("mkl");
  EXPECT_EQ(has_slow_blas(), has_mapped("libblas.so") && !is_fast);
}

TEST(Blas, AFastOneIsNotWarnedAboutAndASlowOneAtMostOnce) {
  const LogCapture captured;
  warn_about_slow_blas();
  warn_about_slow_blas();
  EXPECT_LE(captured.warnings().size(), has_slow_blas() ? 1U : 0U);
}

}  // namespace
}  // namespace lockstep
