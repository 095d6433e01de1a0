#pragma once

#include <array>
#include <string_view>

namespace lockstep::data::internal {

// What stands before and behind a record in a TFRecord file.
struct RecordFrame {
  std::array<char, 12> header;  // its length, and the checksum of that
  std::array<char, 4> sum;      // the checksum of the record
};

RecordFrame frame_of(std::string_view record) noexcept;

}  // namespace lockstep::data::internal
