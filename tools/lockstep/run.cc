#include "tools/lockstep/run.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/socket.h"
#include "tools/lockstep/child.h"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;

void say(const std::string& text) {
  const auto line = str("lockstep run: ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Ports that were free a moment ago.
std::vector<int> find_free_ports(std::size_t count) {
  std::vector<internal::Socket> held;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    held.push_back(internal::Socket::listen({"127.0.0.1", 0}));
    ports.push_back(held.back().port());
  }
  return ports;
}

std::string random_secret() { return str(std::hex, unguessable_number(), unguessable_number()); }

// The signals that the launcher acts on, as something to wait for. The process's own handling is put back afterwards.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
      if (!is_ignored(signal)) sigaddset(&wanted, signal);  // nohup and background jobs ignore some
    ::signal(SIGPIPE, SIG_IGN);                             // who reads our output may go: the tasks go on
    sigprocmask(SIG_BLOCK, &wanted, &previous_);
    descriptor_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    close(descriptor_);
    sigprocmask(SIG_SETMASK, &previous_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }

  // The signals that came and ask for the end; news of children only wake the launcher.
  std::vector<int> take() const {
    std::vector<int> signals;
    signalfd_siginfo info = {};
    while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
    return signals;
  }

 private:
  static bool is_ignored(int signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    return action.sa_handler == SIG_IGN;
  }

  int descriptor_ = -1;
  sigset_t previous_ = {};
};

enum class Outcome { kGood, kFailed, kInterrupted };

// One start of all tasks.
class Attempt {
 public:
  Attempt(const RunOptions& options, const std::string& secret, int number) : options_(options), begin_(Clock::now()) {
    const auto ports = find_free_ports(ports_needed(options.shape));
    for (const auto& planned : plan_tasks(options.shape, ports, secret, number, options.max_restarts))
      children_.push_back(
          std::make_unique<Child>(planned.task, options.command, planned.environment, log_of(planned.task, number)));
  }

  Outcome wait(const Signals& signals) {
    while (!std::ranges::all_of(children_, &Child::has_ended)) {
      wait_for_news(signals);
      for (const int signal : signals.take()) interrupt(signal);
      for (const auto& child : children_) child->forward_output();
      note_failures();
      if (!end_began_ && is_training_over()) begin_end(SIGTERM);
      if (end_began_ && !was_killed_ && Clock::now() - *end_began_ > options_.grace) kill_all();
    }
    return was_interrupted_ ? Outcome::kInterrupted : failed_ != nullptr ? Outcome::kFailed : Outcome::kGood;
  }

  void show_failure() const {
    if (failed_ == nullptr) return;
    say(str(failed_->task(), " failed first: ", describe(failed_->ending()), ", ", seconds(failed_after_), " s after the start",
            failed_->last_lines().empty() ? "; it wrote nothing" : "; its last lines:"));
    for (const auto& line : failed_->last_lines()) std::fprintf(stderr, "    %s\n", line.c_str());
  }

 private:
  static double seconds(Clock::duration duration) {
    return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) / 1000;
  }

  std::string log_of(const Task& task, int number) const {
    if (options_.log_dir.empty()) return "";
    return str(options_.log_dir, "/", task.type, "_", task.index, ".attempt_", number, ".log");
  }

  void wait_for_news(const Signals& signals) const {
    constexpr int kMilliseconds = 100;
    std::vector<pollfd> watched = {{signals.descriptor(), POLLIN, 0}};
    for (const auto& child : children_)
      if (child->output() >= 0) watched.push_back({child->output(), POLLIN, 0});
    poll(watched.data(), watched.size(), kMilliseconds);
  }

  // Of several that ended since the last look, one that was killed is the cause and those that threw are the consequence.
  void note_failures() {
    const Child* bad = nullptr;
    for (const auto& child : children_)
      if (child->check_ended() && !child->ending().is_good() && (bad == nullptr || child->ending().signal != 0))
        bad = child.get();
    if (bad == nullptr || failed_ != nullptr || end_began_) return;
    failed_ = bad;
    failed_after_ = Clock::now() - begin_;
    begin_end(SIGTERM);
  }

  bool is_training_over() const {
    return std::ranges::all_of(children_, [](const auto& child) {
      return child->has_ended() || (child->task().type != "chief" && child->task().type != "worker");
    });
  }

  void interrupt(int signal) {
    if (was_interrupted_) return kill_all();
    was_interrupted_ = true;
    say(str("passes ", strsignal(signal), " on to all tasks"));
    begin_end(signal);
  }

  void begin_end(int signal) {
    if (!end_began_) end_began_ = Clock::now();
    for (const auto& child : children_)
      if (!child->has_ended()) child->send(signal);
  }

  void kill_all() {
    was_killed_ = true;
    for (const auto& child : children_)
      if (!child->has_ended()) child->send(SIGKILL);
  }

  const RunOptions& options_;
  const Clock::time_point begin_;
  std::vector<std::unique_ptr<Child>> children_;
  const Child* failed_ = nullptr;
  Clock::duration failed_after_ = {};
  std::optional<Clock::time_point> end_began_;
  bool was_interrupted_ = false;
  bool was_killed_ = false;
};

void make_log_dir(const std::string& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (error) throw Error(ErrorCode::kInvalidArgument, str("cannot make the folder '", path, "' (", error.message(), ")"));
}

}  // namespace

int run_job(const RunOptions& options) {
  validate(options.shape);
  if (options.command.empty()) throw Error(ErrorCode::kInvalidArgument, "there is no program to run");
  if (options.max_restarts < 0)
    throw Error(ErrorCode::kInvalidArgument, str("--max-restarts is ", options.max_restarts, "; it must not be negative"));
  make_log_dir(options.log_dir);
  const auto secret = Environment().get("LOCKSTEP_JOB_SECRET").value_or(options.shape.nodes == 1 ? random_secret() : "");
  if (secret.empty()) say("LOCKSTEP_JOB_SECRET is not set: whoever reaches the port can join the job");
  const Signals signals;
  for (int number = 0;; ++number) {
    Attempt attempt(options, secret, number);
    const auto outcome = attempt.wait(signals);
    if (outcome == Outcome::kGood) return 0;
    attempt.show_failure();
    if (outcome == Outcome::kInterrupted || number >= options.max_restarts) return 1;
    say(str("starts all tasks again (", number + 1, " of ", options.max_restarts, ")"));
  }
}

}  // namespace lockstep::tool
