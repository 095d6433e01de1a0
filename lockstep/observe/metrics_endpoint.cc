#include "lockstep/observe/metrics_endpoint.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/address.h"
#include "lockstep/cluster/socket.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostClients = 16;
constexpr std::size_t kMostRequest = 8192;
constexpr std::chrono::seconds kClientTime(5);  // from the first byte it may send to the last that it gets
constexpr std::chrono::seconds kLongestPoll(60);
constexpr std::chrono::seconds kNoRoom(1);

Address parse(const std::string& text) {
  constexpr int kMostPort = 65535;
  if (const auto port = whole_number<int>(text)) {
    if (*port < 0 || *port > kMostPort)
      throw Error(ErrorCode::kInvalidArgument, str("MetricsEndpoint: port ", *port, "; ports are 0 to ", kMostPort));
    return {"127.0.0.1", *port};
  }
  // An address of a cluster has no port 0, which means a free one here.
  if (text.ends_with(":0")) return {Address::parse(text.substr(0, text.size() - 1) + "1", "MetricsEndpoint").host, 0};
  return Address::parse(text, "MetricsEndpoint");
}

std::string response(const std::string& status, const std::string& type, const std::string& body, bool has_body) {
  return str("HTTP/1.1 ", status, "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(),
             "\r\nConnection: close\r\n\r\n", has_body ? body : "");
}

// Of a request whose head is whole.
std::string answer(const std::string& request, const MetricsRegistry& registry) {
  constexpr char kPlain[] = "text/plain; charset=utf-8";
  const auto line = request.substr(0, request.find_first_of("\r\n"));
  const auto first = line.find(' ');
  const auto second = line.find(' ', first + 1);
  const auto method = line.substr(0, first);
  const bool is_get = method == "GET";
  if (first == std::string::npos || second == std::string::npos || !line.substr(second + 1).starts_with("HTTP/"))
    return response("400 Bad Request", kPlain, "this is no HTTP request\n", true);
  if (!is_get && method != "HEAD") return response("405 Method Not Allowed", kPlain, "only GET is answered\n", true);
  auto path = line.substr(first + 1, second - first - 1);
  path.resize(std::min(path.size(), path.find('?')));
  if (path != "/metrics") return response("404 Not Found", kPlain, "the numbers are at /metrics\n", is_get);
  return response("200 OK", "text/plain; version=0.0.4; charset=utf-8", registry.text(), is_get);
}

// One connection. It asks, gets its answer, and closes: what it sends besides is read until then, because a connection that is
// closed with something unread takes back what is on its way to the other side.
class Client {
 public:
  explicit Client(internal::Socket socket) : socket_(std::move(socket)) {}

  pollfd entry() const { return {socket_.descriptor(), static_cast<short>(state_ == State::kAnswered ? POLLOUT : POLLIN), 0}; }
  const Deadline& deadline() const { return deadline_; }

  // False: it is done, or gone.
  bool go_on(const MetricsRegistry& registry) {
    if (deadline_.has_passed()) return false;
    if (state_ == State::kAnswered) return send();
    if (!receive()) return false;
    if (state_ == State::kClosing) return true;
    const bool is_whole = request_.find("\r\n\r\n") != std::string::npos || request_.find("\n\n") != std::string::npos;
    if (!is_whole && request_.size() < kMostRequest) return true;
    reply_ = is_whole ? answer(request_, registry)
                      : response("431 Request Header Fields Too Large", "text/plain", "the request is too long\n", true);
    state_ = State::kAnswered;
    return send();
  }

 private:
  enum class State { kAsking, kAnswered, kClosing };

  bool receive() {
    char buffer[2048];
    std::string why;
    const auto count = socket_.receive(buffer, sizeof buffer, why);
    if (count > 0 && state_ == State::kAsking) request_.append(buffer, static_cast<std::size_t>(count));
    return count != 0;
  }

  bool send() {
    const auto sent = ::send(socket_.descriptor(), reply_.data(), reply_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    reply_.erase(0, static_cast<std::size_t>(sent));
    if (!reply_.empty()) return true;
    ::shutdown(socket_.descriptor(), SHUT_WR);
    state_ = State::kClosing;
    return true;
  }

  internal::Socket socket_;
  Deadline deadline_ = Deadline::after(kClientTime);
  State state_ = State::kAsking;
  std::string request_;
  std::string reply_;  // what is left of it
};

}  // namespace

struct MetricsEndpoint::State {
  State(const std::string& address, std::shared_ptr<const MetricsRegistry> of)
      : registry(std::move(of)),
        listener(internal::Socket::listen(parse(address))),
        wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake < 0) throw Error(ErrorCode::kUnavailable, "MetricsEndpoint: no file descriptor is left; raise `ulimit -n`");
    port = listener.port();
  }
  ~State() {
    thread.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake, &one, sizeof one);
    if (thread.joinable()) thread.join();
    ::close(wake);
  }

  void serve(const std::stop_token& stop) noexcept try {
    std::list<Client> clients;
    while (!stop.stop_requested()) {
      wait(clients);
      if (stop.stop_requested()) return;
      for (auto it = clients.begin(); it != clients.end();) it = it->go_on(*registry) ? std::next(it) : clients.erase(it);
      accept(clients);
    }
  } catch (const std::exception& error) {
    log_warning(str("the metrics endpoint has ended: ", error.what()));
  }

  // Until anybody can go on, or has no time left.
  void wait(const std::list<Client>& clients) const {
    std::vector<pollfd> entries = {{wake, POLLIN, 0}, {has_room ? listener.descriptor() : -1, POLLIN, 0}};
    std::chrono::nanoseconds longest = has_room ? kLongestPoll : kNoRoom;
    for (const auto& client : clients) {
      entries.push_back(client.entry());
      longest = std::min(longest, client.deadline().remaining());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(longest).count();
    ::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
  }

  // Whoever has been here longest makes room.
  void accept(std::list<Client>& clients) {
    has_room = true;
    for (std::size_t k = 0; k < kMostClients; ++k) {
      auto socket = listener.accept();
      if (!socket.is_open()) {
        has_room = errno != EMFILE && errno != ENFILE;  // who waits there is still there: no reason to look at once
        return;
      }
      if (clients.size() == kMostClients) clients.pop_front();
      clients.emplace_back(std::move(socket));
    }
  }

  // Const after construction.
  const std::shared_ptr<const MetricsRegistry> registry;
  const internal::Socket listener;
  const int wake;
  int port = 0;

  // Used only on the thread.
  bool has_room = true;  // for one more file descriptor

  std::jthread thread;  // last member: joined first
};

MetricsEndpoint::MetricsEndpoint(const std::string& address, std::shared_ptr<const MetricsRegistry> registry) {
  require(registry != nullptr, "MetricsEndpoint: there is no registry; give it std::make_shared<MetricsRegistry>()");
  state_ = std::make_unique<State>(address, std::move(registry));
  state_->thread =
      start_thread("lockstep:metrics", [state = state_.get()](const std::stop_token& stop) { state->serve(stop); });
}

MetricsEndpoint::~MetricsEndpoint() = default;

int MetricsEndpoint::port() const noexcept { return state_->port; }

}  // namespace lockstep
