#include "tools/lockstep/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tools/lockstep/guard.h"

namespace lockstep::tool {
namespace {

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& environment,
                         const Process::Streams& streams, int report, pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  dup2(streams.input, STDIN_FILENO);
  dup2(streams.output, STDOUT_FILENO);
  dup2(streams.error, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // the launcher ignores it
  execvpe(arguments[0], arguments.data(), environment.data());
  const int error = errno;
  [[maybe_unused]] const auto written = write(report, &error, sizeof error);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> on_top_of_ours(const Variables& given) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (given.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : given) all.push_back(str(name, "=", value));
  return all;
}

}  // namespace

std::string describe(const Ending& ending) {
  if (!ending.lost.empty()) return ending.lost;
  return ending.signal != 0 ? str("signal ", ending.signal, " (", strsignal(ending.signal), ")")
                            : str("exit code ", ending.exit_code);
}

Process::Process(const std::vector<std::string>& command, const Variables& variables, const Streams& streams) {
  auto arguments = command;
  auto environment = on_top_of_ours(variables);
  const auto argument_pointers = pointers(arguments);
  const auto variable_pointers = pointers(environment);
  Guard::of_this_process();
  Pipe report;  // closed by a successful exec; otherwise tells its error
  const auto launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) become(argument_pointers, variable_pointers, streams, report.write_end(), launcher);
  if (pid_ < 0) throw Error(ErrorCode::kUnavailable, str("cannot start a process (", errno_text(errno), ")"));
  Guard::of_this_process().watch(pid_);
  report.close_write_end();
  int error = 0;
  const auto told = read(report.read_end(), &error, sizeof error);
  if (told <= 0) {
    setpgid(pid_, pid_);  // also here: whoever comes first
    return;
  }
  waitpid(pid_, nullptr, 0);
  Guard::of_this_process().forget(pid_);
  throw Error(ErrorCode::kNotFound, str("cannot start '", command[0], "' (", errno_text(error), ")"));
}

Process::~Process() {
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);  // only now: until then the number of its group is nobody else's
  Guard::of_this_process().forget(pid_);
}

void Process::send(int signal) const noexcept { kill(-pid_, signal); }

const std::optional<Ending>& Process::ending() {
  siginfo_t info = {};
  if (ending_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_)
    return ending_;
  ending_.emplace();
  if (info.si_code == CLD_EXITED) ending_->exit_code = info.si_status;
  else ending_->signal = info.si_status;
  return ending_;
}

Pipe::Pipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0)
    throw Error(ErrorCode::kUnavailable,
                str("cannot make a pipe (", errno_text(errno), "); raise the limit of open files (ulimit -n)"));
}

Pipe::~Pipe() {
  close_read_end();
  close_write_end();
}

void Pipe::close_end(int which) noexcept {
  if (ends_[which] >= 0) close(std::exchange(ends_[which], -1));
}

void make_nonblocking(int descriptor) noexcept { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

}  // namespace lockstep::tool
