#include "lockstep/base/log.h"
#include "lockstep/data/io/jpeg.h"
#include "lockstep/data/io/png.h"
#include "tests/fuzz/fuzz.h"

// The first byte chooses the channels. Large sizes are legal, and slow: they are left to the limits of the readers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::data::internal;
  if (size == 0) return 0;
  const int channels = data[0] % 3 == 2 ? 3 : data[0] % 3;
  for (const auto read : {read_jpeg, read_png})
    lockstep::fuzz::expect_typed_errors(data + 1, size - 1, [&](const std::string& bytes) { read(bytes, channels); });
  return 0;
}
