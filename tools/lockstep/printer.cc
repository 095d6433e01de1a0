#include "tools/lockstep/printer.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep::tool {

void Printer::work() {
  while (write_some()) continue;
}

void Printer::finish(int stop) {
  constexpr int kForever = -1;
  while (write_some() || !is_empty()) {
    std::array<pollfd, 2> watched = {pollfd{STDOUT_FILENO, POLLOUT, 0}, pollfd{stop, POLLIN, 0}};
    poll(watched.data(), watched.size(), kForever);
    if (watched[1].revents != 0) written_ = waiting_.size();
  }
}

bool Printer::write_some() {
  if (is_empty()) return false;
  pollfd entry = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  // A pipe that is ready takes this much without blocking.
  const auto count =
      write(STDOUT_FILENO, waiting_.data() + written_, std::min<std::size_t>(waiting_.size() - written_, PIPE_BUF));
  if (count > 0) written_ += static_cast<std::size_t>(count);
  else if (errno != EINTR && errno != EAGAIN) written_ = waiting_.size();
  if (written_ * 2 > waiting_.size()) waiting_.erase(0, std::exchange(written_, 0));
  return !is_empty();
}

void say(Printer& printer, const std::string& text) {
  printer.work();
  const auto line = str("lockstep run: ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lockstep::tool
