#include "lockstep/cluster/lifeline.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep {
namespace {

using internal::LifelineBytes;

constexpr std::size_t kMostStrangers = 64;             // connections that have not shown a ticket
constexpr std::chrono::seconds kTimeToShow(5);         // a ticket, on a connection
constexpr std::chrono::seconds kTimeToConnect(15);     // a ticket, at all
constexpr std::chrono::milliseconds kLookAround(100);  // how soon an overdue ticket is seen
constexpr std::chrono::milliseconds kBeat(250);
constexpr std::chrono::milliseconds kAbsence(1000);  // between two looks: this process was stopped
constexpr std::chrono::seconds kRest(1);             // when there are no more file descriptors
constexpr const char* kIsSilent = "nothing comes from its machine any more";

Deadline soon() { return Deadline::after(kLookAround); }

// What cannot be said does not matter any more: whoever reads from the connection notices.
void say(const internal::Socket& socket, char byte, const Deadline& deadline) noexcept {
  try {
    socket.send(&byte, 1, deadline);
  } catch (const Error&) {
  }
}
void say_goodbye(const internal::Socket& socket) noexcept { say(socket, LifelineBytes::kGoodbye, soon()); }
void say_beat(const internal::Socket& socket) noexcept {
  say(socket, LifelineBytes::kBeat, Deadline::after(std::chrono::nanoseconds(0)));
}

}  // namespace

std::chrono::nanoseconds Wakefulness::lasts() {
  const auto now = std::chrono::steady_clock::now();
  if (now - std::exchange(asked_, now) > kAbsence) since_ = now;
  return now - since_;
}

LifelineServer::LifelineServer(const std::string& host, Events events)
    : events_(std::move(events)), listener_(internal::Socket::listen({host, 0})), port_(listener_.port()) {
  thread_ = start_thread("lockstep:lives", [this](const std::stop_token& stop) { serve(stop); });
}

LifelineServer::~LifelineServer() {
  thread_.request_stop();
  listener_.stop_receiving();
  thread_.join();
  for (const auto& connection : connections_) say_goodbye(connection.socket);
}

std::uint64_t LifelineServer::admit(std::uint64_t member) {
  const std::lock_guard lock(mu_);
  std::uint64_t ticket = unguessable_number();
  while (!tickets_.emplace(ticket, Ticket{member, Deadline::after(kTimeToConnect)}).second) ticket = unguessable_number();
  return ticket;
}

void LifelineServer::serve(const std::stop_token& stop) {
  std::vector<pollfd> watched;
  while (!stop.stop_requested()) {
    watched.assign(1, {listener_.descriptor(), static_cast<short>(has_room() ? POLLIN : 0), 0});
    for (const auto& connection : connections_) watched.push_back({connection.socket.descriptor(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), static_cast<int>(kLookAround.count()));
    if (stop.stop_requested()) return;
    awake_for_ = awake_.lasts();
    std::vector<Connection> alive;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const bool has_news = watched[i + 1].revents != 0;
      const bool is_overdue = connections_[i].member == 0 && connections_[i].must_show_by.has_passed();
      const bool is_gone = !has_news && is_silent(connections_[i]);
      if (is_gone) events_.on_lost(connections_[i].member, kIsSilent);
      if (has_news ? read(connections_[i]) : !is_overdue && !is_gone) alive.push_back(std::move(connections_[i]));
    }
    connections_ = std::move(alive);
    expire_tickets();
    if (beats_at_.has_passed()) beat();
    if (watched[0].revents != 0) accept_new();
  }
}

void LifelineServer::beat() {
  beats_at_ = Deadline::after(kBeat);
  for (const auto& connection : connections_)
    if (connection.member != 0) say_beat(connection.socket);
}

bool LifelineServer::is_silent(const Connection& connection) const {
  return connection.member != 0 && awake_for_ > kLostAfter && connection.socket.silent_for() > kLostAfter;
}

// Whoever waits to be accepted would be reported again and again.
void LifelineServer::rest() {
  rests_until_ = Deadline::after(kRest);
  log_warning(str("the coordinator cannot take another connection (", errno_text(errno), "): raise `ulimit -n`"));
}

bool LifelineServer::has_room() {
  if (!rests_until_.has_passed()) return false;
  const auto strangers = std::ranges::count(connections_, 0U, &Connection::member);
  const std::lock_guard lock(mu_);
  return static_cast<std::size_t>(strangers) < kMostStrangers + tickets_.size();
}

void LifelineServer::expire_tickets() {
  std::vector<std::uint64_t> overdue;
  {
    const std::lock_guard lock(mu_);
    std::erase_if(tickets_, [&](const auto& entry) {
      const bool is_overdue = entry.second.must_be_shown_by.has_passed();
      if (is_overdue) overdue.push_back(entry.second.member);
      return is_overdue;
    });
  }
  for (const auto member : overdue) events_.on_lost(member, "it registered and never opened its second connection");
}

void LifelineServer::accept_new() {
  while (has_room()) {
    auto socket = listener_.accept();
    if (!socket.is_open() && (errno == EMFILE || errno == ENFILE)) rest();
    if (!socket.is_open()) return;
    socket.send_at_once();
    connections_.push_back({std::move(socket), {}, 0, Deadline::after(kTimeToShow)});
  }
}

bool LifelineServer::take_ticket(Connection& connection) {
  const std::lock_guard lock(mu_);
  const auto found = tickets_.find(connection.received.ticket());
  if (found == tickets_.end()) return false;
  connection.member = found->second.member;
  tickets_.erase(found);
  return true;
}

bool LifelineServer::read(Connection& connection) {
  char bytes[64];
  std::string why;
  const auto count = connection.socket.receive(bytes, sizeof bytes, why);
  if (count < 0) return true;
  if (count == 0) {
    if (connection.member != 0) events_.on_lost(connection.member, why);
    return false;
  }
  connection.received.add({bytes, static_cast<std::size_t>(count)});
  while (true) {
    switch (connection.received.next()) {
      case LifelineBytes::News::kNothing: return true;
      case LifelineBytes::News::kTicket:
        if (!take_ticket(connection)) return false;  // a stranger
        break;
      case LifelineBytes::News::kGoodbye: events_.on_left(connection.member); return false;
      case LifelineBytes::News::kGarbage:
        if (connection.member != 0) events_.on_lost(connection.member, "it sent what it should not");
        return false;
    }
  }
}

Lifeline::Lifeline(const Address& server, std::uint64_t ticket, const Deadline& deadline,
                   std::function<void(const std::string& how)> on_lost, std::function<void()> on_end)
    : socket_(internal::Socket::connect(server, deadline)) {
  socket_.send_at_once();
  const auto greeting = LifelineBytes::show(ticket);
  socket_.send(greeting.data(), greeting.size(), deadline);
  thread_ = start_thread("lockstep:life",
                         [this, on_lost = std::move(on_lost), on_end = std::move(on_end)](const std::stop_token& stop) {
                           Wakefulness awake;
                           auto beats_at = Deadline::after(kBeat);
                           while (!stop.stop_requested()) {
                             if (beats_at.has_passed()) {
                               beats_at = Deadline::after(kBeat);
                               say_beat(socket_);
                             }
                             const bool is_readable = socket_.wait_readable(soon());
                             if (stop.stop_requested()) return;
                             const bool is_awake = awake.lasts() > kLostAfter;
                             if (!is_readable && is_awake && socket_.silent_for() > kLostAfter) return on_lost(kIsSilent);
                             if (!is_readable) continue;
                             char byte = 0;
                             std::string why;
                             const auto count = socket_.receive(&byte, 1, why);
                             if (count < 0 || (count > 0 && byte == LifelineBytes::kBeat)) continue;
                             if (count > 0 && byte == LifelineBytes::kGoodbye) on_end();
                             else on_lost(count > 0 ? "it sent what it should not" : why);
                             return;
                           }
                         });
}

Lifeline::~Lifeline() {
  thread_.request_stop();
  socket_.stop_receiving();
  thread_.join();
  say_goodbye(socket_);
}

}  // namespace lockstep
