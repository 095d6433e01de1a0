#include "tools/lockstep/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kLongestLine = 64 << 10;

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& environment, int input, int output,
                         int report, pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that is killed takes its tasks with it
  if (getppid() != launcher) _exit(1);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
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

// This process's variables with the given ones in their place.
std::vector<std::string> merged(const std::map<std::string, std::string>& given) {
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
  return ending.signal != 0 ? str("signal ", ending.signal, " (", strsignal(ending.signal), ")")
                            : str("exit code ", ending.exit_code);
}

Child::Child(Task task, const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
             const std::string& log_file)
    : task_(std::move(task)), prefix_(str("[", task_, "] ")), log_(nullptr, std::fclose) {
  if (!log_file.empty()) {
    log_.reset(std::fopen(log_file.c_str(), "we"));
    if (!log_)
      throw Error(ErrorCode::kFailedPrecondition, str("cannot write the log file '", log_file, "' (", errno_text(errno), ")"));
  }
  auto arguments = command;
  auto variables = merged(environment);
  const auto argument_pointers = pointers(arguments);
  const auto variable_pointers = pointers(variables);
  int output[2];
  int report[2];  // closed by a successful exec; otherwise tells its error
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
    throw Error(ErrorCode::kUnavailable, str("cannot make a pipe (", errno_text(errno), ")"));
  const auto launcher = getpid();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);  // a task that read the terminal would be stopped by it
  pid_ = fork();
  if (pid_ == 0) become(argument_pointers, variable_pointers, nothing, output[1], report[1], launcher);
  const int fork_error = errno;
  for (const int descriptor : {nothing, output[1], report[1]}) close(descriptor);
  output_ = output[0];
  int error = 0;
  const auto told = pid_ < 0 ? 0 : read(report[0], &error, sizeof error);
  close(report[0]);
  if (pid_ > 0 && told <= 0) {
    setpgid(pid_, pid_);  // also here: whoever comes first
    fcntl(output_, F_SETFL, O_NONBLOCK);
    return;
  }
  close(output_);
  if (pid_ < 0) throw Error(ErrorCode::kUnavailable, str("cannot start a process (", errno_text(fork_error), ")"));
  waitpid(pid_, nullptr, 0);
  throw Error(ErrorCode::kNotFound, str("cannot start '", command[0], "' (", errno_text(error), ")"));
}

Child::~Child() {
  send(SIGKILL);
  waitpid(pid_, nullptr, 0);  // only now: until then the number of its group is nobody else's
  if (output_ >= 0) close(output_);
}

void Child::send(int signal) const noexcept { kill(-pid_, signal); }

bool Child::check_ended() {
  constexpr int kReadsAtTheEnd = 64;
  siginfo_t info = {};
  if (has_ended_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_)
    return false;
  if (info.si_code == CLD_EXITED) ending_.exit_code = info.si_status;
  else ending_.signal = info.si_status;
  has_ended_ = true;
  forward_output(kReadsAtTheEnd);
  if (!line_.empty()) finish_line('\n');
  return true;
}

void Child::forward_output(int reads) {
  char buffer[16 << 10];
  for (; output_ >= 0 && reads > 0; --reads) {
    const auto count = read(output_, buffer, sizeof buffer);
    if (count > 0) {
      take(buffer, static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      close(output_);
      output_ = -1;
    }
  }
}

void Child::take(const char* text, std::size_t bytes) {
  if (log_) std::fwrite(text, 1, bytes, log_.get());
  for (std::size_t i = 0; i < bytes; ++i) {
    if (text[i] == '\n' || text[i] == '\r') finish_line(text[i]);
    else line_ += text[i];
    if (line_.size() >= kLongestLine) finish_line('\n');
  }
  if (log_) std::fflush(log_.get());
}

// A carriage return ends a line too, so that progress bars of several tasks do not run into each other.
void Child::finish_line(char end) {
  if (line_.empty() && end == '\r') return;
  const auto whole = str(prefix_, line_, end);
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
  last_lines_.push_back(std::move(line_));
  line_.clear();
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

}  // namespace lockstep::tool
