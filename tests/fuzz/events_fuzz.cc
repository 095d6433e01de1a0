#include "lockstep/data/io/record_frame.h"
#include "lockstep/observe/event_reader.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

// An event file with one record of these bytes, which its checksums call whole, and then the bytes alone.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    const auto frame = lockstep::data::internal::frame_of(bytes);
    const auto path = lockstep::fuzz::write_file(std::string(frame.header.begin(), frame.header.end()) + bytes +
                                                 std::string(frame.sum.begin(), frame.sum.end()) + bytes);
    lockstep::read_events(path, [](const lockstep::Event&) {});
  });
}
