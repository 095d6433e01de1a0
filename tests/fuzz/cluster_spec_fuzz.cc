#include <cstdlib>

#include "lockstep/cluster/cluster_spec.h"
#include "tests/fuzz/fuzz.h"

// What was read can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    const auto spec = lockstep::ClusterSpec::from_json(text);
    if (!(lockstep::ClusterSpec::from_json(spec.to_json()) == spec)) std::abort();
  });
}
