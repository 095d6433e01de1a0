#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/cluster/lifeline_bytes.h"
#include "lockstep/cluster/socket.h"

namespace lockstep {

// So long without an acknowledgement: the other machine is gone.
constexpr std::chrono::milliseconds kLostAfter(3500);

// Note [lifelines]
// Every member keeps one TCP connection to the coordinator, on which both sides send a byte four times a second. When a
// process dies its system closes the connection at once. When a machine or link is gone nothing is acknowledged any more:
// after 3.5 s without a single acknowledgement the other side is lost. (Neither TCP's keep-alive nor its user timeout is
// used: the first gives up after three lost packets, the second when one byte had bad luck, and a line that loses a few
// percent is slow, not gone.) A process that is stopped or busy keeps its connection, its system acknowledges: it is late,
// not dead, and only the deadlines of waits decide about it.
// A good-bye before the connection closes makes the end a clean one.

// Since when this process can tell silence from its own absence: one that was stopped has not sent, and hears anew.
class Wakefulness {
 public:
  // To be asked at least every half second.
  std::chrono::nanoseconds lasts();

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point asked_ = since_;
};

// The coordinator's end of all lifelines.
class LifelineServer {
 public:
  struct Events {
    std::function<void(std::uint64_t member, const std::string& how)> on_lost;
    std::function<void(std::uint64_t member)> on_left;
  };

  // Listens on a free port of `host`. The events are called on the server's own thread.
  LifelineServer(const std::string& host, Events events);
  ~LifelineServer();  // says good-bye to all
  LifelineServer(const LifelineServer&) = delete;
  LifelineServer& operator=(const LifelineServer&) = delete;

  int port() const noexcept { return port_; }

  // A ticket with which one connection becomes this member's lifeline. A member that never shows it is lost.
  std::uint64_t admit(std::uint64_t member);

 private:
  struct Connection {
    internal::Socket socket;
    internal::LifelineBytes received;
    std::uint64_t member = 0;  // 0: has not shown its ticket
    Deadline must_show_by;
  };

  void serve(const std::stop_token& stop);
  void accept_new();
  // False when the connection is over.
  bool read(Connection& connection);
  bool take_ticket(Connection& connection);
  void expire_tickets();
  void beat();
  bool is_silent(const Connection& connection) const;
  // Strangers may wait, but not without end: those of members that were admitted, and some more.
  bool has_room();
  void rest();

  // Const after construction.
  const Events events_;
  const internal::Socket listener_;
  const int port_;

  // Guarded by mu_.
  std::mutex mu_;
  struct Ticket {
    std::uint64_t member;
    Deadline must_be_shown_by;
  };
  std::map<std::uint64_t, Ticket> tickets_;

  // Used only by the thread.
  std::vector<Connection> connections_;
  Deadline rests_until_ = Deadline::after(std::chrono::nanoseconds(0));
  Deadline beats_at_ = Deadline::after(std::chrono::nanoseconds(0));
  Wakefulness awake_;
  std::chrono::nanoseconds awake_for_{0};

  std::jthread thread_;  // last: joined first
};

// A member's end.
class Lifeline {
 public:
  // Throws what connecting throws. `on_lost` is called once, on the lifeline's own thread, when the coordinator is gone;
  // `on_end` when it has said good-bye.
  Lifeline(const Address& server, std::uint64_t ticket, const Deadline& deadline,
           std::function<void(const std::string& how)> on_lost, std::function<void()> on_end);
  ~Lifeline();  // says good-bye
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

 private:
  const internal::Socket socket_;
  std::jthread thread_;  // last: joined first
};

}  // namespace lockstep
