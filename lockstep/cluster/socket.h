#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/cluster/address.h"

namespace lockstep::internal {

// A TCP socket that is closed with its owner, and at once in a process that is forked: the other side would take the child
// for the parent, whose death it is to notice. Never blocks: every wait has a deadline.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), forks_(other.forks_) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Listens; port 0 takes a free one. Throws kFailedPrecondition naming the address when it cannot.
  static Socket listen(const Address& address);
  // Throws kNotFound for a host that does not resolve, kUnavailable, kDeadlineExceeded.
  static Socket connect(const Address& address, const Deadline& deadline);
  // What a connection that is being opened has come to. kYes: the other machine has said something, be it that nobody
  // listens there. kNo: there is no way there.
  enum class Answer { kNotYet, kYes, kNo };
  // Begins to connect to a numeric address, and does not wait. Not open: this process cannot open a socket.
  static Socket begin_connect(const Address& address, Answer& answer);
  // To be asked until it is not kNotYet, and not again.
  Answer answer() const;

  // Holds a free port, of the kind of `host`, without listening: this machine's system says so to whoever asks.
  static Socket hold_port(const std::string& host);

  int descriptor() const noexcept { return descriptor_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }
  int port() const;  // the local one

  // A connection that waits, if there is one.
  Socket accept() const;

  // What is sent goes at once.
  void send_at_once() const;
  // How long nothing has come from the other machine. Its system acknowledges what it gets, also for a process that is
  // stopped; so this tells of lost machines and links, as long as this side sends something now and then.
  std::chrono::milliseconds silent_for() const;

  // Sends all, or throws kUnavailable.
  void send(const void* data, std::size_t bytes, const Deadline& deadline) const;
  // What is there, up to `bytes`: -1 nothing yet, 0 the other side has closed or is gone (`why` says how).
  std::ptrdiff_t receive(void* data, std::size_t bytes, std::string& why) const;
  // True when there is something to receive before the deadline.
  bool wait_readable(const Deadline& deadline) const;
  // Ends a wait_readable, or a poll, that is under way on another thread, and all later ones.
  void stop_receiving() const noexcept;

 private:
  int descriptor_ = -1;
  std::uint64_t forks_ = 0;  // when it was opened
};

}  // namespace lockstep::internal
