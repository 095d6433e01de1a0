#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "tools/lockstep/messages.h"

namespace lockstep::tool {

// The messages of Note [launcher and nodes] over two descriptors, which the owner keeps open. Never blocks.
// REQUIRES: SIGPIPE is ignored (Signals does it).
class Link {
 public:
  enum class Greeting { kSent, kExpected };

  // The side of the node sends the greeting. Who is not heard of for `lost_after` is taken for gone.
  Link(int input, int output, Greeting greeting, std::chrono::nanoseconds lost_after);

  void send(const Message& message);
  // Writes what can be written, says Alive when it is time, and gives what has come (nothing when `reads` is false).
  std::vector<Message> work(bool reads = true);
  void watch(std::vector<pollfd>& watched) const;

  // Why nothing more can come; empty: it can.
  const std::string& broken() const noexcept { return broken_; }
  // True while there is so much to send that nobody should bring more.
  bool is_full() const noexcept { return outgoing_.size() - written_ >= kMostWaiting; }
  // Nothing that was sent waits here.
  bool is_flushed() const noexcept { return outgoing_.size() == written_; }
  // What came before the greeting.
  std::string take_banner() { return std::exchange(banner_, ""); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostWaiting = 1 << 20;
  // A launcher may be asked by anybody; what it sends itself names all tasks to each.
  static constexpr std::size_t kMostToLauncher = 4 << 20;
  static constexpr std::size_t kMostToNode = 1 << 30;

  void read_some();
  void take(std::string_view bytes);
  void write_some();
  void check_silence(bool reads);

  const int input_;
  const int output_;
  const std::chrono::nanoseconds lost_after_;
  bool is_greeted_;
  std::string unseen_;  // may be the beginning of the greeting
  std::string banner_;
  MessageReader reader_;
  std::string outgoing_;
  std::size_t written_ = 0;  // of outgoing_
  bool is_deaf_ = false;     // the other side takes nothing any more; what it said before is still to be read
  std::string broken_;
  Clock::time_point last_heard_ = Clock::now();
  Clock::time_point last_alive_ = Clock::now();
};

}  // namespace lockstep::tool
