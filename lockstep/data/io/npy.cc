#include "lockstep/data/io/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = 8;  // the magic string and two bytes of version
// NumPy itself refuses headers of more than 10,000 bytes.
constexpr std::size_t kMostHeaderBytes = std::size_t{1} << 20;
constexpr std::size_t kMostDimensions = 64;  // NumPy's own limit
constexpr std::size_t kAlignment = 64;
constexpr bool kIsLittle = std::endian::native == std::endian::little;

[[noreturn]] void fail(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, str(where, " is damaged: ", why));
}

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

// What the header says, a dictionary as Python prints it: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  NpyHeader parse() {
    expect('{');
    while (!accept('}')) {
      parse_entry(quoted());
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (!rest_.empty()) fail(where_, "its header goes on after the last '}'");
    if (seen_.size() < 3) fail(where_, "its header lacks one of 'descr', 'fortran_order' and 'shape'");
    return header_;
  }

 private:
  void parse_entry(std::string_view key) {
    expect(':');
    skip_space();
    if (!seen_.insert(key).second) fail(where_, str("its header says '", key, "' twice"));
    if (key == "descr") parse_type();
    else if (key == "fortran_order") parse_order();
    else if (key == "shape") parse_sizes();
    else fail(where_, str("its header has the unknown key '", key, "'"));
  }

  void parse_type() {
    if (rest_.starts_with('[')) refuse_type("a structure");
    const auto given = quoted();
    auto type = given;
    const bool has_order = !type.empty() && std::string_view("<>=|").find(type[0]) != std::string_view::npos;
    const char order = has_order ? type[0] : '=';
    if (has_order) type.remove_prefix(1);
    if (!std::ranges::count(npy_types(), type)) refuse_type(str("'", given, "'"));
    header_.type = type;
    header_.value_bytes = *whole_number<std::size_t>(type.substr(1));
    if (header_.value_bytes > 1 && order == (kIsLittle ? '>' : '<'))
      throw Error(ErrorCode::kUnimplemented,
                  str(where_, " holds values of type '", given, "', whose order of bytes is not this machine's; save it with ",
                      "array.astype('=", type, "')"));
  }

  [[noreturn]] void refuse_type(const std::string& given) const {
    throw Error(ErrorCode::kUnimplemented, str(where_, " holds values of type ", given, "; what can be read is ",
                                               join(", ", npy_types()), ": save it with array.astype(...)"));
  }

  void parse_order() {
    if (accept_word("True")) header_.is_fortran_order = true;
    else if (!accept_word("False")) fail(where_, "its header says neither True nor False for 'fortran_order'");
  }

  void parse_sizes() {
    expect('(');
    while (!accept(')')) {
      header_.sizes.push_back(size());
      if (header_.sizes.size() > kMostDimensions) fail(where_, "its header has too many dimensions");
      if (accept(',')) continue;
      expect(')');
      break;
    }
  }

  std::int64_t size() {
    skip_space();
    std::size_t length = 0;
    while (length < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[length]))) ++length;
    const auto value = whole_number(rest_.substr(0, length));
    if (!value) fail(where_, "its header has a dimension that is no number, or an impossible one");
    rest_.remove_prefix(length);
    accept_word("L");  // Python 2 wrote them so
    return *value;
  }

  std::string_view quoted() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const auto end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail(where_, "its header has no string where one must be");
    const auto text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(where_, str("its header has no '", c, "' where one must be"));
  }

  std::string_view rest_;
  const std::string& where_;
  NpyHeader header_;
  std::set<std::string_view> seen_;
};

// "f4 [3, 4]".
std::string name_of(const NpyHeader& header) { return str(header.type, " [", join(", ", header.sizes), "]"); }

// All values together, in bytes; nothing when no memory could hold them. A dimension of 0 counts as 1 in between: the strides
// of the others must fit too.
std::optional<std::size_t> total_bytes(const NpyHeader& header) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  auto total = header.value_bytes;
  for (const auto size : header.sizes) {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(1, size));
    if (total > kMost / count) return std::nullopt;
    total *= count;
  }
  return std::ranges::count(header.sizes, 0) > 0 ? 0 : total;
}

}  // namespace

const std::vector<std::string>& npy_types() {
  static const std::vector<std::string> types = {"b1", "i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "c8", "c16"};
  return types;
}

std::size_t npy_header_bytes(std::string_view begin, const std::string& where) {
  if (!begin.starts_with(kMagic)) fail(where, "it does not begin as a .npy file");
  if (begin.size() < kVersionEnd) fail(where, "it ends within its header");
  const int version = static_cast<unsigned char>(begin[kMagic.size()]);
  if (version < 1 || version > 3)
    throw Error(ErrorCode::kUnimplemented, str(where, " has version ", version, " of the .npy format; 1 to 3 can be read"));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (begin.size() < kVersionEnd + length_bytes) fail(where, "it ends within its header");
  const auto length = little_endian(begin.substr(kVersionEnd, length_bytes));
  if (length > kMostHeaderBytes) fail(where, str("its header says that it has ", length, " bytes; at most ", kMostHeaderBytes));
  return kVersionEnd + length_bytes + length;
}

NpyHeader parse_npy_header(std::string_view bytes, const std::string& where) {
  const auto header_bytes = npy_header_bytes(bytes, where);
  if (bytes.size() < header_bytes) fail(where, "it ends within its header");
  const auto begin = kVersionEnd + (bytes[kMagic.size()] == 1 ? 2 : 4);
  auto header = HeaderParser(bytes.substr(begin, header_bytes - begin), where).parse();
  header.header_bytes = header_bytes;
  const auto total = total_bytes(header);
  if (!total) fail(where, str("its header asks for an impossible size, ", name_of(header)));
  header.data_bytes = *total;
  return header;
}

void check_npy_size(const NpyHeader& header, std::uint64_t data_bytes, const std::string& where) {
  if (data_bytes == header.data_bytes) return;
  fail(where, str("by its header it holds ", name_of(header), ", ", header.data_bytes, " bytes, but there are ", data_bytes));
}

std::string make_npy_header(const std::string& type, const std::vector<std::int64_t>& sizes) {
  const char order = type.substr(1) == "1" ? '|' : kIsLittle ? '<' : '>';
  auto text = str("{'descr': '", order, type, "', 'fortran_order': False, 'shape': (", join(", ", sizes),
                  sizes.size() == 1 ? "," : "", "), }");
  const auto prefix = kVersionEnd + 2;
  // Spaces, so that the values begin at a multiple of the alignment; the last character is a new line.
  text.append(kAlignment - 1 - (prefix + text.size()) % kAlignment, ' ');
  text += '\n';
  auto header = str(kMagic, '\1', '\0');
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace lockstep::data::internal
