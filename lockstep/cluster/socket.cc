#include "lockstep/cluster/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/forks.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const Address& address, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0)
    throw Error(ErrorCode::kNotFound, str("the host '", address.host, "' does not resolve (", gai_strerror(error),
                                          "); check the name, or write its IP address"));
  return {found, freeaddrinfo};
}

int open_socket(const addrinfo& at) {
  return ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
}

bool poll_one(int descriptor, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry = {descriptor, events, 0};
    // Rounded up: a wait of nothing, again and again, would be the end of every wait.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 && deadline.has_passed()) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Socket::Answer answer_of(int error) { return error == 0 || error == ECONNREFUSED ? Socket::Answer::kYes : Socket::Answer::kNo; }

// The open sockets, a bit each by their numbers; one with a higher number is closed by exec only. Without a lock, which
// another thread could hold when the process is forked.
constexpr int kRemembered = 1 << 16;
std::array<std::atomic<std::uint64_t>, kRemembered / 64> g_open{};

void remember(int descriptor, bool is_open) {
  if (descriptor >= kRemembered) return;
  const auto bit = std::uint64_t{1} << (descriptor % 64);
  auto& word = g_open[static_cast<std::size_t>(descriptor / 64)];
  if (is_open) word.fetch_or(bit);
  else word.fetch_and(~bit);
}

void close_in_child() {
  for (std::size_t at = 0; at < g_open.size(); ++at) {
    const auto word = g_open[at].exchange(0);
    for (int bit = 0; bit < 64; ++bit)
      if ((word >> bit & 1) != 0) ::close(static_cast<int>(at) * 64 + bit);
  }
}

void set(int descriptor, int level, int option, int value) { ::setsockopt(descriptor, level, option, &value, sizeof value); }

}  // namespace

Socket::Socket(int descriptor) : descriptor_(descriptor), forks_(forks()) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, close_in_child);
  if (is_open()) remember(descriptor_, true);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(forks_, other.forks_);
  return *this;
}

Socket::~Socket() {
  if (!is_open() || forks_ != forks()) return;
  remember(descriptor_, false);
  ::close(descriptor_);
}

Socket Socket::listen(const Address& address) {
  const auto found = resolve(address, AI_PASSIVE);
  int error = 0;
  for (const auto* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket(open_socket(*at));
    if (!socket.is_open()) error = errno;
    if (!socket.is_open()) continue;
    set(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(socket.descriptor_, at->ai_addr, at->ai_addrlen) == 0 && ::listen(socket.descriptor_, SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  const auto* hint = error == EMFILE || error == ENFILE ? "); raise `ulimit -n`" : "); is another process using the port?";
  throw Error(ErrorCode::kFailedPrecondition,
              error == EADDRNOTAVAIL
                  ? str("cannot listen on ", address.host, ", which is no address of this machine; is this the right task?")
                  : str("cannot listen on ", address, " (", errno_text(error), hint));
}

Socket Socket::connect(const Address& address, const Deadline& deadline) {
  const auto found = resolve(address, 0);
  int error = 0;
  for (const auto* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket(open_socket(*at));
    if (!socket.is_open()) error = errno;
    if (!socket.is_open()) continue;
    if (::connect(socket.descriptor_, at->ai_addr, at->ai_addrlen) == 0) return socket;
    error = errno;
    if (error != EINPROGRESS) continue;
    if (!poll_one(socket.descriptor_, POLLOUT, deadline))
      throw Error(ErrorCode::kDeadlineExceeded, str(address, " does not answer"));
    socklen_t size = sizeof error;
    ::getsockopt(socket.descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return socket;
  }
  throw Error(ErrorCode::kUnavailable, str("cannot connect to ", address, " (", errno_text(error), ")"));
}

Socket Socket::begin_connect(const Address& address, Answer& answer) {
  const auto found = resolve(address, AI_NUMERICHOST);
  Socket socket(open_socket(*found));
  if (!socket.is_open()) return socket;
  const int error = ::connect(socket.descriptor_, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  answer = error == EINPROGRESS ? Answer::kNotYet : answer_of(error);
  // Not the fault of the way there: this machine has no port left, or no memory.
  if (error == EADDRNOTAVAIL || error == EAGAIN || error == ENOBUFS || error == ENOMEM) return {};
  return socket;
}

Socket::Answer Socket::answer() const {
  pollfd entry = {descriptor_, POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) return Answer::kNotYet;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
  return answer_of(error);
}

Socket Socket::hold_port(const std::string& host) {
  const auto found = resolve({host.find(':') == std::string::npos ? "0.0.0.0" : "::", 0}, AI_PASSIVE | AI_NUMERICHOST);
  Socket socket(open_socket(*found));
  if (!socket.is_open() || ::bind(socket.descriptor_, found->ai_addr, found->ai_addrlen) != 0)
    throw Error(ErrorCode::kFailedPrecondition, str("there is no free port (", errno_text(errno), ")"));
  return socket;
}

int Socket::port() const {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&storage), &size);
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(storage).sin_port);
}

Socket Socket::accept() const { return Socket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

void Socket::send_at_once() const { set(descriptor_, IPPROTO_TCP, TCP_NODELAY, 1); }

std::chrono::milliseconds Socket::silent_for() const {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

void Socket::send(const void* data, std::size_t bytes, const Deadline& deadline) const {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto sent = ::send(descriptor_, next, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      next += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN && poll_one(descriptor_, POLLOUT, deadline)) {
      continue;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kUnavailable, str("cannot send (", errno_text(errno), ")"));
    }
  }
}

std::ptrdiff_t Socket::receive(void* data, std::size_t bytes, std::string& why) const {
  const auto received = ::recv(descriptor_, data, bytes, 0);
  if (received > 0) return received;
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
  // A process that ends with something unread resets its connections instead of closing them.
  const bool is_closed = received == 0 || errno == ECONNRESET;
  why = is_closed ? "the connection was closed without a good-bye" : str("the connection broke (", errno_text(errno), ")");
  return 0;
}

void Socket::stop_receiving() const noexcept { ::shutdown(descriptor_, SHUT_RD); }

bool Socket::wait_readable(const Deadline& deadline) const { return poll_one(descriptor_, POLLIN, deadline); }

}  // namespace lockstep::internal
