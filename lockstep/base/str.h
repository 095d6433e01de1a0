#pragma once

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>

namespace lockstep {
namespace internal {

// Numbers as C++ writes them, whatever the program's locale: no "5.056" for 5056. (To ask is free; to imbue always would make
// str() a third slower.)
inline void use_plain_numbers(std::ostream& out) {
  if (out.getloc() != std::locale::classic()) out.imbue(std::locale::classic());
}

}  // namespace internal

// All arguments written one after the other: str("rank ", 2, ": gone") == "rank 2: gone". The same in every locale.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  internal::use_plain_numbers(out);
  (out << ... << parts);
  return out.str();
}

// ASCII letters in upper case.
inline std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// The parts with `separator` between them: join(", ", {"a", "b"}) == "a, b".
template <typename Range>
std::string join(const std::string& separator, const Range& range) {
  std::ostringstream out;
  internal::use_plain_numbers(out);
  bool is_first = true;
  for (const auto& part : range) {
    if (!is_first) out << separator;
    out << part;
    is_first = false;
  }
  return out.str();
}

}  // namespace lockstep
