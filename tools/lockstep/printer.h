#pragma once

#include <string>
#include <string_view>

namespace lockstep::tool {

// Standard output of a launcher that must never stand still: what nobody reads yet (a paused terminal, a slow pipe) waits
// here. Text for a reader that is gone is dropped.
class Printer {
 public:
  // A tool's only one: it writes to descriptor 1.
  Printer() = default;
  ~Printer() { finish(); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void print(std::string_view text) { waiting_.append(text); }
  // Writes what can be written now. To be called often.
  void work();
  // True while there is so much to write that nobody should bring more.
  bool is_full() const noexcept { return waiting_.size() - written_ >= kMostWaiting; }
  bool is_empty() const noexcept { return waiting_.size() == written_; }
  // Writes all, however long the reader takes: at the end there is nothing else to do. What is left when `stop`, a file
  // descriptor, becomes readable is dropped.
  void finish(int stop = -1);

 private:
  static constexpr std::size_t kMostWaiting = 1 << 20;

  // False when nothing more can be written now.
  bool write_some();

  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
};

// One line "lockstep run: <text>" to standard error, after all that was printed.
void say(Printer& printer, const std::string& text);

}  // namespace lockstep::tool
