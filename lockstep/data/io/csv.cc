#include "lockstep/data/io/csv.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Reads a field that begins with a quote; `at` is behind it. False: see split_csv.
bool take_quoted(std::string_view row, std::size_t& at, std::string& field) {
  while (at < row.size()) {
    const auto quote = row.find('"', at);
    if (quote == std::string_view::npos) return false;
    field.append(row.substr(at, quote - at));
    at = quote + 1;
    if (at == row.size() || row[at] != '"') return true;
    field.push_back('"');
    ++at;
  }
  return false;
}

}  // namespace

bool split_csv(std::string_view row, char separator, std::vector<std::string>& fields) {
  fields.clear();
  std::size_t at = 0;
  for (;;) {
    auto& field = fields.emplace_back();
    if (at < row.size() && row[at] == '"') {
      ++at;
      if (!take_quoted(row, at, field)) return false;
      if (at < row.size() && row[at] != separator) return false;
    } else {
      const auto end = std::min(row.find(separator, at), row.size());
      field = row.substr(at, end - at);
      at = end;
    }
    if (at == row.size()) return true;
    ++at;  // the separator
  }
}

CsvReader::CsvReader(const std::string& path, char separator, Compression compression)
    : file_(path, compression), separator_(separator) {
  if (file_.peek(kByteOrderMark.size()).starts_with(kByteOrderMark)) file_.consume(kByteOrderMark.size());
}

// Up to the first end of a line that is not inside quotes.
bool CsvReader::next_row(std::string_view& row, std::size_t& with_end) {
  bool is_quoted = false;
  bool may_open = true;  // at the beginning of a field, or behind a closing quote, which may be half of a doubled one
  std::size_t searched = 0;
  for (auto there = file_.peek(1); there.size() > searched; there = file_.peek(searched + 1)) {
    for (; searched < there.size(); ++searched) {
      const char c = there[searched];
      if (c == '"' && (is_quoted || may_open)) {
        is_quoted = !is_quoted;
        may_open = true;
      } else {
        may_open = c == separator_;
      }
      if (c == '\n') ++lines_read_;
      if (c != '\n' || is_quoted) continue;
      row = there.substr(0, searched);
      with_end = searched + 1;
      return true;
    }
    if (searched > kLongestRow)
      throw Error(ErrorCode::kDataLoss, str("the row at line ", line_, " of '", path(), "' has more than ", kLongestRow,
                                            " bytes: is a quote never closed?"));
  }
  row = file_.peek(searched);
  with_end = row.size();
  return !row.empty();
}

bool CsvReader::next(std::vector<std::string>& fields) {
  std::string_view row;
  std::size_t with_end = 0;
  is_behind_row_ = false;
  do {
    line_ = lines_read_ + 1;
    if (!next_row(row, with_end)) return false;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) file_.consume(with_end);
  } while (row.empty());
  const bool is_whole = split_csv(row, separator_, fields);
  file_.consume(with_end);
  is_behind_row_ = true;
  if (!is_whole)
    throw Error(ErrorCode::kDataLoss,
                str("line ", line_, " of '", path(), "': a quote is never closed, or something stands behind a closing quote"));
  return true;
}

}  // namespace lockstep::data
