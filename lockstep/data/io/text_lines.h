#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/data/io/input_file.h"

namespace lockstep::data {

// The lines of a text file, without their ends. As in tf.data a carriage return is left out wherever it stands, and a last
// line needs no end.
class LineReader {
 public:
  explicit LineReader(const std::string& path, Compression compression = Compression::kNone) : file_(path, compression) {}

  // The next line, valid until the next call; false at the end.
  bool next(std::string_view& line);

  // Of the next line, in decompressed bytes.
  std::uint64_t position() const noexcept { return file_.position() + to_consume_; }
  void seek(std::uint64_t position);

 private:
  InputFile file_;
  std::size_t to_consume_ = 0;  // of the line handed out
  std::string without_returns_;
};

}  // namespace lockstep::data
