#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace lockstep::data {

// The checksum that TFRecord files use, masked as they do.
std::uint32_t masked_crc32c(const void* data, std::size_t bytes);

// Reads the records of one TFRecord file: length, checksum of the length, data, checksum of the data.
class RecordReader {
 public:
  // Throws kNotFound when the file cannot be opened.
  explicit RecordReader(std::string path);

  // False at the end. Throws kDataLoss, with the position, for a file that is cut off or damaged.
  bool next(std::string& record);

 private:
  // False when not even one byte is left and `may_end`.
  bool read(void* to, std::size_t bytes, bool may_end);
  [[noreturn]] void fail(const std::string& what) const;

  const std::string path_;
  std::ifstream file_;
  std::uint64_t position_ = 0;  // of the record
};

// Writes a whole file. Throws kUnavailable when it cannot.
void write_records(const std::string& path, const std::vector<std::string>& records);

}  // namespace lockstep::data
