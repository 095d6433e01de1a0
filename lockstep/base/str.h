#pragma once

#include <sstream>
#include <string>

namespace lockstep {

// All arguments written one after the other: str("rank ", 2, ": gone") == "rank 2: gone".
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// The parts with `separator` between them: join(", ", {"a", "b"}) == "a, b".
template <typename Range>
std::string join(const std::string& separator, const Range& range) {
  std::ostringstream out;
  bool is_first = true;
  for (const auto& part : range) {
    if (!is_first) out << separator;
    out << part;
    is_first = false;
  }
  return out.str();
}

}  // namespace lockstep
