#include "lockstep/cluster/hostlist.h"
#include "tests/fuzz/fuzz.h"

using lockstep::fuzz::expect_typed_errors;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  expect_typed_errors(data, size, [](const std::string& text) { lockstep::expand_hostlist(text); });
  return expect_typed_errors(data, size, [](const std::string& text) { lockstep::expand_tasks_per_node(text); });
}
