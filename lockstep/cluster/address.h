#pragma once

#include <iosfwd>
#include <string>

namespace lockstep {

// Where a task listens: "host:2222", "10.0.0.1:2222", "[::1]:2222".
struct Address {
  std::string host;  // without brackets
  int port = 0;

  // Throws kInvalidArgument that says what is missing. `whose` begins the message.
  static Address parse(const std::string& text, const std::string& whose);

  bool operator==(const Address&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Address& address);

}  // namespace lockstep
