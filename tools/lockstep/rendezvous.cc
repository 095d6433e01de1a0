#include "tools/lockstep/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/reminder.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/socket.h"

namespace lockstep::tool {
namespace {

using internal::Socket;

constexpr int kLookAround = 100;                 // milliseconds
constexpr std::chrono::seconds kTimeToGreet(5);  // for one that has connected
constexpr std::chrono::seconds kSayAfter(5);     // how long a wait may take before it is told for whom
constexpr std::chrono::seconds kRest(1);         // when no connection can be accepted
constexpr std::size_t kMostStrangers = 64;       // connections that have not said who they are

class SocketTransport : public Transport {
 public:
  SocketTransport(Socket socket, Link::Greeting greeting, std::chrono::nanoseconds lost_after)
      : socket_(std::move(socket)), link_(socket_.descriptor(), socket_.descriptor(), greeting, lost_after) {
    socket_.send_at_once();
  }

  Link& link() override { return link_; }
  void watch(std::vector<pollfd>&) const override {}
  void work() override {}
  std::string last_words() override { return ""; }
  int descriptor() const { return socket_.descriptor(); }

 private:
  const Socket socket_;
  Link link_;
};

std::string peer_address(int descriptor) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  char text[INET6_ADDRSTRLEN] = {};
  getpeername(descriptor, reinterpret_cast<sockaddr*>(&storage), &size);
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<sockaddr_in6&>(storage).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&address)) inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof text);
    else inet_ntop(AF_INET6, &address, text, sizeof text);
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(storage).sin_addr, text, sizeof text);
  }
  return text;
}

// Those who have connected, until all are there.
class Meeting {
 public:
  Meeting(const MeetingOptions& options, Printer& printer)
      : options_(options), printer_(printer), listener_(Socket::listen(options.at)) {}

  // False when a signal asked for the end.
  bool wait(const Signals& signals) {
    const auto deadline = Deadline::after(options_.timeout);
    Reminder reminder(kSayAfter);
    while (static_cast<int>(guests_.size()) < options_.nodes - 1) {
      if (deadline.has_passed())
        throw Error(ErrorCode::kDeadlineExceeded,
                    str("waited ", std::chrono::duration<double>(options_.timeout).count(), " s at ", options_.at,
                        "; missing are ", who_is_missing(), ". Start `lockstep run` there with the same --nnodes and --rdzv"));
      if (reminder.is_due()) say(printer_, str("waits at ", options_.at, " for ", who_is_missing()));
      wait_for_news(signals);
      if (!signals.take().empty()) return false;
      accept_new();
      std::erase_if(guests_, [this](const auto& entry) { return !is_still_here(entry.second); });
      std::erase_if(strangers_, [this](Stranger& stranger) { return !look_at(stranger); });
    }
    return true;
  }

  std::vector<Guest> take_guests() {
    std::vector<Guest> guests;
    for (auto& [rank, guest] : guests_) guests.push_back(std::move(guest));
    return guests;
  }

 private:
  struct Stranger {
    std::unique_ptr<SocketTransport> transport;
    Deadline must_greet_by;
    bool is_refused = false;
  };

  void wait_for_news(const Signals& signals) const {
    std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
    if (strangers_.size() < kMostStrangers && rests_until_.has_passed()) watched.push_back({listener_.descriptor(), POLLIN, 0});
    for (const auto& stranger : strangers_) stranger.transport->link().watch(watched);
    for (const auto& [rank, guest] : guests_) guest.node->watch(watched, /*wants_output=*/true);
    printer_.watch(watched);
    poll(watched.data(), watched.size(), kLookAround);
    printer_.work();
  }

  // It hears that we are alive, and may go again before all have come.
  bool is_still_here(const Guest& guest) {
    try {
      guest.node->work(/*wants_output=*/true);
      return true;
    } catch (const Error& error) {
      say(printer_, str(error.message(), "; waits for it again"));
      return false;
    }
  }

  void accept_new() {
    while (strangers_.size() < kMostStrangers) {
      auto socket = listener_.accept();
      // Out of file descriptors, whoever waits to be accepted would be reported again and again.
      if (!socket.is_open() && (errno == EMFILE || errno == ENFILE)) rests_until_ = Deadline::after(kRest);
      if (!socket.is_open()) return;
      strangers_.push_back(
          {std::make_unique<SocketTransport>(std::move(socket), Link::Greeting::kExpected, options_.lost_after),
           Deadline::after(kTimeToGreet)});
    }
  }

  // False when it is no stranger any more.
  bool look_at(Stranger& stranger) {
    auto& link = stranger.transport->link();
    const auto messages = link.work();
    if (!link.broken().empty() || stranger.must_greet_by.has_passed()) return false;
    if (stranger.is_refused || messages.empty()) return true;  // a refused one closes when it has heard why
    try {
      if (messages[0].kind != MessageKind::kHello) return false;
      return !admit(stranger, unpack_hello(messages[0].body));
    } catch (const Error&) {
      return false;
    }
  }

  bool admit(Stranger& stranger, const Hello& hello) {
    const auto why = why_not(hello);
    if (!why.empty()) {
      stranger.is_refused = true;
      stranger.transport->link().send({MessageKind::kBye, pack(Farewell{1, str("node 0 refuses this node: ", why)})});
      say(printer_, str("refuses node ", hello.rank, " on host '", hello.host, "': ", why));
      return false;
    }
    Guest guest{hello, hello.address.empty() ? peer_address(stranger.transport->descriptor()) : hello.address, nullptr};
    guest.node = std::make_unique<RemoteNode>(str("node ", hello.rank, " (host ", hello.host, ")"),
                                              std::move(stranger.transport), hello);
    guests_.emplace(hello.rank, std::move(guest));
    return true;
  }

  std::string why_not(const Hello& hello) const {
    if (hello.secret != options_.secret) return "its job secret is another one; start all with the same LOCKSTEP_JOB_SECRET";
    if (hello.build != build_name()) return str("it has '", hello.build, "' and node 0 '", build_name(), "'; use one build");
    if (hello.nodes != options_.nodes) return str("its --nnodes is ", hello.nodes, " and node 0's ", options_.nodes);
    if (hello.rank < 1 || hello.rank >= options_.nodes) return str("there is no --node-rank ", hello.rank);
    if (guests_.count(hello.rank) > 0)
      return str("--node-rank ", hello.rank, " is taken by host '", guests_.at(hello.rank).hello.host, "'");
    return "";
  }

  std::string who_is_missing() const {
    std::vector<std::string> missing;
    for (int rank = 1; rank < options_.nodes; ++rank)
      if (guests_.count(rank) == 0) missing.push_back(str("node ", rank));
    return join(", ", missing);
  }

  const MeetingOptions& options_;
  Printer& printer_;
  const Socket listener_;
  std::vector<Stranger> strangers_;
  Deadline rests_until_ = Deadline::after(std::chrono::nanoseconds(0));
  std::map<std::int64_t, Guest> guests_;
};

Socket connect_patiently(const MeetingOptions& meeting, Printer& printer) {
  const auto deadline = Deadline::after(meeting.timeout);
  Reminder reminder(kSayAfter);
  while (true) {
    try {
      return Socket::connect(meeting.at, deadline);
    } catch (const Error& error) {
      if (!is_retryable(error.code())) throw;
      if (deadline.has_passed())
        throw Error(ErrorCode::kDeadlineExceeded, str("node 0 does not answer at ", meeting.at, " (", error.message(),
                                                      "); is it started there, and is the port open?"));
    }
    if (reminder.is_due()) say(printer, str("waits for node 0 at ", meeting.at));
    poll(nullptr, 0, kLookAround);
  }
}

}  // namespace

std::vector<Guest> wait_for_nodes(const MeetingOptions& options, const Signals& signals, Printer& printer) {
  Meeting meeting(options, printer);
  return meeting.wait(signals) ? meeting.take_guests() : std::vector<Guest>();
}

int join_launcher(const MeetingOptions& meeting, const Hello& hello, const OwnWork& own, Printer& printer) {
  SocketTransport transport(connect_patiently(meeting, printer), Link::Greeting::kSent, meeting.lost_after);
  transport.link().send({MessageKind::kHello, pack(hello)});
  return serve_launcher(transport.link(), &own);
}

}  // namespace lockstep::tool
