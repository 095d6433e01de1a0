#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/file_source.h"
#include "lockstep/data/io/csv.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::internal {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// False: no number, or something behind it.
template <typename T>
bool read_number(std::string_view text, T& value) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  // Numbers that a float cannot hold become 0 or infinite, as elsewhere.
  std::conditional_t<std::is_same_v<T, float>, double, T> wide{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), wide);
  value = static_cast<T>(wide);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

class CsvRows final : public FileReader {
 public:
  CsvRows(const std::string& path, std::vector<CsvColumn> columns, const CsvOptions& options)
      : reader_(path, options.separator, options.read.compression), columns_(std::move(columns)) {
    for (std::size_t c = 0; c < columns_.size(); ++c) places_.push_back(c);
    if (options.has_header && reader_.next(fields_)) find_columns();
  }

  bool next(Element& out) override {
    if (!reader_.next(fields_)) return false;
    std::vector<Component> components;
    components.reserve(columns_.size());
    for (std::size_t c = 0; c < columns_.size(); ++c) components.push_back(read(c));
    out = Element(std::move(components));
    return true;
  }
  bool skip_damage() override { return reader_.skip_damage(); }
  std::uint64_t position() const override { return reader_.position(); }
  void seek(std::uint64_t position) override { reader_.seek(position); }

 private:
  void find_columns() {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const auto found = std::ranges::find(fields_, columns_[c].name);
      if (found == fields_.end())
        throw Error(ErrorCode::kInvalidArgument, lockstep::str("'", reader_.path(), "' has no column '", columns_[c].name,
                                                               "'; its first row says: ", join(", ", fields_)));
      places_[c] = static_cast<std::size_t>(found - fields_.begin());
    }
  }

  Component read(std::size_t c) const {
    const auto& column = columns_[c];
    if (places_[c] >= fields_.size()) fail(c, lockstep::str("is missing: the row has ", fields_.size(), " fields"));
    const auto& field = fields_[places_[c]];
    const auto& text = field.empty() && column.or_else ? *column.or_else : field;
    switch (column.kind) {
      case FeatureKind::kBytes: return {column.name, Bytes{{text}, {}}};
      case FeatureKind::kInt64: return {column.name, number<std::int64_t>(c, text, at::kLong)};
      default: return {column.name, number<float>(c, text, at::kFloat)};
    }
  }

  template <typename T>
  at::Tensor number(std::size_t c, const std::string& text, at::ScalarType dtype) const {
    T value{};
    if (!read_number(text, value))
      fail(c, lockstep::str("is '", text.substr(0, 40), "', not ", name_of(columns_[c].kind),
                            text.empty() ? "; its third part is what an empty field counts as" : ""));
    auto tensor = at::empty({}, dtype);
    *tensor.data_ptr<T>() = value;
    return tensor;
  }

  [[noreturn]] void fail(std::size_t c, const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, lockstep::str("line ", reader_.line(), " of '", reader_.path(), "': the column '",
                                                    columns_[c].name, "' ", why));
  }

  CsvReader reader_;
  const std::vector<CsvColumn> columns_;
  std::vector<std::size_t> places_;  // of the columns, in a row
  std::vector<std::string> fields_;
};

void require_default(const CsvColumn& column) {
  std::int64_t whole = 0;
  float number = 0;
  if (!column.or_else || column.kind == FeatureKind::kBytes) return;
  if (column.kind == FeatureKind::kInt64 ? read_number(*column.or_else, whole) : read_number(*column.or_else, number)) return;
  throw Error(ErrorCode::kInvalidArgument, lockstep::str("csv: what an empty field of the column '", column.name,
                                                         "' counts as is '", *column.or_else, "', not ", name_of(column.kind)));
}

}  // namespace

NodePtr make_csv(std::vector<std::string> files, std::vector<CsvColumn> columns, const CsvOptions& options) {
  if (columns.empty()) throw Error(ErrorCode::kInvalidArgument, "csv: no column is asked for");
  for (const auto& column : columns)
    if (column.kind == FeatureKind::kNone)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("csv: the column '", column.name, "' has no type; use kFloat, kInt64 or kBytes"));
  for (const auto& column : columns) require_default(column);
  if (options.separator == '"' || options.separator == '\n' || options.separator == '\r')
    throw Error(ErrorCode::kInvalidArgument, "csv: a quote or an end of line cannot separate fields");
  auto open = [columns = std::move(columns), options](const std::string& path) -> std::unique_ptr<FileReader> {
    return std::make_unique<CsvRows>(path, columns, options);
  };
  return make_files(std::move(files), {"Csv", std::move(open), options.read});
}

}  // namespace lockstep::data::internal
