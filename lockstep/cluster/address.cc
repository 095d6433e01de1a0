#include "lockstep/cluster/address.h"

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {

Address Address::parse(const std::string& text, const std::string& whose) {
  const auto refuse = [&](const char* why) {
    return Error(ErrorCode::kInvalidArgument,
                 str("the address of ", whose, " is '", text, "': ", why, "; write host:port, for example 10.0.0.1:2222"));
  };
  const auto colon = text.rfind(':');
  const bool has_bracket = text.starts_with('[');
  const auto bracket = text.rfind(']');
  if (colon == std::string::npos || (has_bracket && (bracket == std::string::npos || colon != bracket + 1)))
    throw refuse("it has no port");
  Address address;
  address.host = has_bracket ? text.substr(1, bracket - 1) : text.substr(0, colon);
  if (address.host.empty()) throw refuse("it has no host");
  if (address.host.find_first_of("[] \t\r\n") != std::string::npos) throw refuse("its host has brackets or spaces in it");
  if (!has_bracket && address.host.find(':') != std::string::npos) throw refuse("an IPv6 host stands in brackets");
  const auto port = whole_number<int>(text.substr(colon + 1));
  constexpr int kHighestPort = 65535;
  if (!port || *port < 0 || *port > kHighestPort) throw refuse("its port is not a number up to 65535");
  address.port = *port;
  return address;
}

std::ostream& operator<<(std::ostream& out, const Address& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return out << (is_ipv6 ? "[" : "") << address.host << (is_ipv6 ? "]:" : ":") << address.port;
}

}  // namespace lockstep
