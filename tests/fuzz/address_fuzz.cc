#include <cstdlib>

#include "lockstep/base/str.h"
#include "lockstep/cluster/address.h"
#include "tests/fuzz/fuzz.h"

// What was read can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    const auto address = lockstep::Address::parse(text, "a task");
    if (!(lockstep::Address::parse(lockstep::str(address), "a task") == address)) std::abort();
  });
}
