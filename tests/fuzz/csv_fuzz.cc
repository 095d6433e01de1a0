#include <cstdio>

#include "lockstep/data/io/csv.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    if (bytes.empty()) return;
    lockstep::data::CsvReader reader(lockstep::fuzz::write_file(bytes.substr(1)), bytes[0]);
    std::vector<std::string> fields;
    for (bool goes_on = true; goes_on;) {
      try {
        goes_on = reader.next(fields);
      } catch (const lockstep::Error&) {
        goes_on = reader.skip_damage();
      }
    }
  });
}
