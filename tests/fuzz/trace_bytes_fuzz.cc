#include "lockstep/observe/trace_file.h"
#include "tests/fuzz/fuzz.h"

// A recording that another worker sent.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size,
                                             [](const std::string& bytes) { lockstep::internal::recording_from_bytes(bytes); });
}
