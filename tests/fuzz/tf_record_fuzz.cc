#include <cstdio>

#include "lockstep/data/io/tf_record.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

// The first byte chooses the compression; damage is passed over as often as the reader can.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    if (bytes.empty()) return;
    const auto path = lockstep::fuzz::write_file(bytes.substr(1));
    lockstep::data::RecordReader reader(path,
                                        static_cast<lockstep::data::Compression>(static_cast<unsigned char>(bytes[0]) % 3));
    std::string_view record;
    for (bool goes_on = true; goes_on;) {
      try {
        goes_on = reader.next(record);
      } catch (const lockstep::Error&) {
        goes_on = reader.skip_damage();
      }
    }
  });
}
