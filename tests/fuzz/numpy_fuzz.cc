#include <cstdio>

#include "lockstep/data/io/npy.h"
#include "lockstep/data/io/npz.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

// The header of an array; and the same bytes as an archive.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::data::internal;
  lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) { parse_npy_header(bytes, "the input"); });
  return lockstep::fuzz::expect_typed_errors(
      data, size, [](const std::string& bytes) { read_npz_arrays(lockstep::fuzz::write_file(bytes)); });
}
