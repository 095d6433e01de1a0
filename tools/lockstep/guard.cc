#include "tools/lockstep/guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <set>

#include "tools/lockstep/process.h"

namespace lockstep::tool {
namespace {

struct Order {
  pid_t group;
  bool is_to_watch;
};

// It keeps none of its parent's files open, and no signal that is meant for the parent ends it.
[[noreturn]] void stand_guard(int orders) {
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::signal(signal, SIG_IGN);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, standard);
  const int kept = dup2(orders, STDERR_FILENO + 1);
  close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
  std::set<pid_t> groups;
  Order order = {};
  while (true) {
    const auto count = read(kept, &order, sizeof order);
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof order)) break;
    if (order.is_to_watch) groups.insert(order.group);
    else groups.erase(order.group);
  }
  for (const auto group : groups) kill(-group, SIGKILL);
  _exit(0);
}

void send(int orders, const Order& order) noexcept {
  [[maybe_unused]] const auto count = write(orders, &order, sizeof order);  // without a guard there is nothing to do
}

}  // namespace

Guard& Guard::of_this_process() {
  static Guard guard;
  return guard;
}

Guard::Guard() {
  Pipe pipe;
  const auto child = fork();
  if (child == 0) {
    pipe.close_write_end();
    stand_guard(pipe.read_end());
  }
  orders_ = fcntl(pipe.write_end(), F_DUPFD_CLOEXEC, 0);
}

void Guard::watch(pid_t group) const noexcept { send(orders_, {group, true}); }

void Guard::forget(pid_t group) const noexcept { send(orders_, {group, false}); }

}  // namespace lockstep::tool
