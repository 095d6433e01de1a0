#include <cstdio>

#include "lockstep/data/io/fixed_records.h"
#include "lockstep/data/io/text_lines.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

// Lines and records of one length; the first bytes choose compression and lengths.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    if (bytes.size() < 4) return;
    const auto path = lockstep::fuzz::write_file(bytes.substr(4));
    const auto compression = static_cast<lockstep::data::Compression>(static_cast<unsigned char>(bytes[0]) % 3);
    std::string_view record;
    lockstep::data::LineReader lines(path, compression);
    while (lines.next(record)) {
    }
    const lockstep::data::FixedLengths lengths{bytes[1], bytes[2], bytes[3]};
    validate(lengths);
    lockstep::data::FixedReader fixed(path, lengths, compression);
    while (fixed.next(record))
      if (record.size() != static_cast<std::size_t>(lengths.record)) std::abort();
  });
}
