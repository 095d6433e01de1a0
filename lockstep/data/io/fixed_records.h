#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/data/io/input_file.h"

namespace lockstep::data {

struct FixedLengths {
  std::int64_t record = 0;
  std::int64_t header = 0;  // before the first record
  std::int64_t footer = 0;  // after the last one
};

// Throws kInvalidArgument unless the record has a byte and nothing is negative.
void validate(const FixedLengths& lengths);

// The records of a file in which all have the same length.
class FixedReader {
 public:
  // Throws kInvalidArgument for a file that is no whole number of records, kDataLoss for one without room for its header and
  // footer. Of a compressed file that is found out at its end.
  FixedReader(const std::string& path, const FixedLengths& lengths, Compression compression = Compression::kNone);

  // The next record, valid until the next call; false at the end.
  bool next(std::string_view& record);

  // Of the next record, in decompressed bytes.
  std::uint64_t position() const noexcept { return file_.position() + to_consume_; }
  void seek(std::uint64_t position);

 private:
  void require_whole_records(std::uint64_t bytes) const;

  InputFile file_;
  const FixedLengths lengths_;
  std::size_t to_consume_;  // the header, or the record handed out
};

}  // namespace lockstep::data
