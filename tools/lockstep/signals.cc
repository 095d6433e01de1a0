#include "tools/lockstep/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace lockstep::tool {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    if (!is_ignored(signal)) sigaddset(&wanted, signal);  // nohup and background jobs ignore some
  ::signal(SIGPIPE, SIG_IGN);                             // who reads our output may go: the tasks go on
  sigprocmask(SIG_BLOCK, &wanted, &previous_);
  descriptor_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

Signals::~Signals() {
  close(descriptor_);
  sigprocmask(SIG_SETMASK, &previous_, nullptr);
}

std::vector<int> Signals::take() const {
  std::vector<int> signals;
  signalfd_siginfo info = {};
  while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace lockstep::tool
