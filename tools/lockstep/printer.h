#pragma once

#include <poll.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::tool {

// Standard output and standard error of a launcher that must never stand still: what nobody reads yet (a paused terminal, a
// slow pipe) waits here. Text for a reader that is gone is dropped.
class Printer {
 public:
  // A tool's only one: it writes to descriptors 1 and 2.
  Printer() = default;
  ~Printer() { finish(); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void print(std::string_view text) { output_.waiting.append(text); }
  void complain(std::string_view text) { errors_.waiting.append(text); }
  // Writes what can be written now. To be called often.
  void work();
  // What to wait for.
  void watch(std::vector<pollfd>& watched) const;
  // True while there is so much to write that nobody should bring more.
  bool is_full() const noexcept { return output_.waiting.size() - output_.written >= kMostWaiting; }
  // The end was asked for: readers that do not read have a moment more.
  void hurry();
  // Writes all, however long the reader takes: at the end there is nothing else to do. What is left when `stop`, a file
  // descriptor, becomes readable is dropped, and what is left a moment after hurry().
  void finish(int stop = -1);

 private:
  static constexpr std::size_t kMostWaiting = 1 << 20;

  struct Outlet {
    int descriptor;
    std::string waiting = "";
    std::size_t written = 0;  // of waiting

    bool is_empty() const noexcept { return waiting.size() == written; }
    void drop() { written = waiting.size(); }
    // False when nothing more can be written now.
    bool write_some();
  };

  Outlet output_{STDOUT_FILENO};
  Outlet errors_{STDERR_FILENO};
  std::optional<Deadline> hurried_until_;
};

// One line "lockstep run: <text>" to standard error, after all that was printed.
void say(Printer& printer, const std::string& text);

}  // namespace lockstep::tool
