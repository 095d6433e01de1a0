#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/io/input_file.h"
#include "lockstep/data/io/output_file.h"

namespace lockstep::data {

// Reads the records of one TFRecord file: length, checksum of the length, data, checksum of the data.
class RecordReader {
 public:
  // Throws what InputFile throws.
  explicit RecordReader(const std::string& path, Compression compression = Compression::kNone) : file_(path, compression) {}

  // The next record, valid until the next call; false at the end. Throws kDataLoss, with the position, for a file that is cut
  // off or damaged. After that skip_damage() may be called, and nothing else.
  bool next(std::string_view& record);

  // Behind the record that was found damaged, if its length can be trusted; false: what follows cannot be read.
  bool skip_damage();

  // Of the next record, in decompressed bytes; to be given to seek() of a reader of the same file.
  std::uint64_t position() const noexcept { return start_; }
  void seek(std::uint64_t position);

 private:
  std::string_view require(std::size_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

  InputFile file_;
  std::uint64_t start_ = 0;     // of the next record
  std::size_t to_consume_ = 0;  // of the record handed out
  std::size_t damaged_ = 0;     // the whole size of the record that was found damaged
};

// Writes a TFRecord file. What it wrote is complete when close() has returned.
class RecordWriter {
 public:
  // Throws kFailedPrecondition when the file cannot be made.
  explicit RecordWriter(std::string path, Compression compression = Compression::kNone) : file_(std::move(path), compression) {}

  // These throw kUnavailable when the disk is full or gone.
  void write(std::string_view record);
  void close() { file_.close(); }
  void close_on_disk() { file_.close_on_disk(); }

 private:
  OutputFile file_;
};

// Writes a whole file.
void write_records(const std::string& path, const std::vector<std::string>& records,
                   Compression compression = Compression::kNone);

}  // namespace lockstep::data
