#include "tools/lockstep/child.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::tool {
namespace {

// A task that read the terminal would be stopped by it.
int nothing_to_read() {
  static const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return descriptor;
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const Variables& variables, Sink sink)
    : sink_(std::move(sink)), process_(command, variables, {nothing_to_read(), pipe_.write_end(), pipe_.write_end()}) {
  pipe_.close_write_end();
  make_nonblocking(pipe_.read_end());
}

bool Child::check_ended() {
  constexpr int kReadsAtTheEnd = 64;
  if (has_ended_ || !process_.ending()) return false;
  has_ended_ = true;
  forward_output(kReadsAtTheEnd);
  return true;
}

void Child::forward_output(int reads) {
  char buffer[16 << 10];
  for (; output() >= 0 && reads > 0; --reads) {
    const auto count = read(output(), buffer, sizeof buffer);
    if (count > 0) sink_({buffer, static_cast<std::size_t>(count)});
    else if (count < 0 && errno == EAGAIN) return;
    else if (count == 0 || errno != EINTR) pipe_.close_read_end();
  }
}

}  // namespace lockstep::tool
