#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/io/input_file.h"

// Comma-separated values as RFC 4180 has them: fields may be quoted, a quoted field may hold separators, ends of lines and
// doubled quotes. Empty lines are passed over.

namespace lockstep::data {

// The fields of one row. False when something stands behind a closing quote, or a quote is never closed.
bool split_csv(std::string_view row, char separator, std::vector<std::string>& fields);

// The rows of a file. One thread at a time.
class CsvReader {
 public:
  // A longer row is taken for a quote that was never closed.
  static constexpr std::size_t kLongestRow = std::size_t{1} << 26;

  CsvReader(const std::string& path, char separator, Compression compression = Compression::kNone);

  // The next row's fields; false at the end. Throws kDataLoss naming file and line for a row that cannot be split.
  bool next(std::vector<std::string>& fields);

  // After kDataLoss: whether the next row can be read.
  bool skip_damage() const noexcept { return is_behind_row_; }

  // Of the row that was given last, from 1. After a seek() counted from there.
  std::int64_t line() const noexcept { return line_; }
  // Of the next row, in decompressed bytes.
  std::uint64_t position() const noexcept { return file_.position(); }
  void seek(std::uint64_t position) { file_.seek(position); }

  const std::string& path() const noexcept { return file_.path(); }

 private:
  bool next_row(std::string_view& row, std::size_t& with_end);

  InputFile file_;
  const char separator_;
  std::int64_t line_ = 0;
  std::int64_t lines_read_ = 0;
  bool is_behind_row_ = false;
};

}  // namespace lockstep::data
