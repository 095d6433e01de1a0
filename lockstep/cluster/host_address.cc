#include "lockstep/cluster/host_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/socket.h"

namespace lockstep {

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("localhost");
}

std::string address_towards(const Address& other) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const auto port = std::to_string(other.port > 0 ? other.port : 1);
  if (const int error = getaddrinfo(other.host.c_str(), port.c_str(), &hints, &found); error != 0)
    throw Error(ErrorCode::kNotFound, str("the host '", other.host, "' cannot be found: ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  // A datagram socket that is connected has chosen its way, and with it its address.
  const internal::Socket socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t length = sizeof(local);
  std::array<char, NI_MAXHOST> text{};
  auto* const address = reinterpret_cast<sockaddr*>(&local);
  if (!socket.is_open() || ::connect(socket.descriptor(), list->ai_addr, list->ai_addrlen) != 0 ||
      getsockname(socket.descriptor(), address, &length) != 0 ||
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    throw Error(ErrorCode::kUnavailable, str("there is no way to ", other, ": ", errno_text(errno)));
  return text.data();
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

}  // namespace lockstep
