#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::internal {

// What comes on one lifeline, in whatever pieces: a ticket, then beats, at last a good-bye.
class LifelineBytes {
 public:
  enum class News { kNothing, kTicket, kGoodbye, kGarbage };

  static constexpr char kGoodbye = 'B';
  static constexpr char kBeat = '.';
  // The bytes that show a ticket.
  static std::string show(std::uint64_t ticket);

  // To be called until there is nothing new. After a good-bye or garbage there is nothing more.
  News next();
  void add(std::string_view bytes) { bytes_.append(bytes); }
  // That was shown; valid after kTicket.
  std::uint64_t ticket() const noexcept { return ticket_; }

 private:
  enum class State { kBeforeTicket, kOpen, kEnded };

  State state_ = State::kBeforeTicket;
  std::string bytes_;
  std::uint64_t ticket_ = 0;
};

}  // namespace lockstep::internal
