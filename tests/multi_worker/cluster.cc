#include "tests/multi_worker/cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <sstream>
#include <stdexcept>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/str.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw std::runtime_error(str("cannot ", what, ": ", errno_text(error)));
}

// Whether a variable tells a program of a cluster, or how it takes part in one.
bool describes_cluster(const std::string& name) {
  constexpr std::array kNames = {
      "TF_CONFIG",   "RANK",        "WORLD_SIZE",      "LOCAL_RANK",          "LOCAL_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_ENGINE", "LOCKSTEP_JOB_SECRET", "LOCKSTEP_K8S_SERVICE"};
  constexpr std::array kBeginnings = {"OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "LOCKSTEP_TLS_"};
  return std::ranges::any_of(kNames, [&](const char* one) { return name == one; }) ||
         std::ranges::any_of(kBeginnings, [&](const char* one) { return name.starts_with(one); });
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const auto name = text.substr(0, text.find('='));
    if (!describes_cluster(name) && !variables.contains(name)) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(str(name, "=", value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (true) {
    const auto count = pread(file, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// A file that is nowhere in the file system.
int memory_file(const std::string& name) {
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) fail("make a file in memory");
  return file;
}

pid_t spawn(const Command& command, int output, int log) {
  auto words = command.words;
  auto variables = environment_with(command.variables);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, log, STDERR_FILENO);
  posix_spawnattr_t attributes;  // a group of its own, so that what it starts can be ended with it
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, words.at(0).c_str(), &files, &attributes, pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail(str("start ", words[0]), error);
  return pid;
}

// The last lines, which tell most.
std::string end_of(const std::string& text) {
  constexpr std::size_t kMost = 3000;
  return text.size() <= kMost ? text : "... " + text.substr(text.size() - kMost);
}

}  // namespace

std::vector<std::string> Ending::lines() const {
  std::vector<std::string> all;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::optional<std::string> Ending::after(const std::string& word) const {
  for (const auto& line : lines())
    if (line.starts_with(word + " ")) return line.substr(word.size() + 1);
  return std::nullopt;
}

std::string Ending::error_code() const {
  const auto text = after("error").value_or("");
  return text.substr(0, text.find(' '));
}

std::ostream& operator<<(std::ostream& out, const Ending& ending) {
  return out << "\n--- " << ending.name << ": exit code " << ending.exit_code
             << (ending.was_late ? ", killed at the deadline" : "") << " after " << ending.lasted.count()
             << " s; the end of its output:\n"
             << end_of(ending.output) << "--- and of its log:\n"
             << end_of(ending.log) << "---\n";
}

Process::Process(std::string name, const Command& command)
    : name_(std::move(name)),
      started_(Clock::now()),
      output_(memory_file("output")),
      log_(memory_file("log")),
      pid_(spawn(command, output_, log_)),
      watch_(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0))) {}

Process::~Process() {
  end();
  for (const int file : {output_, log_, watch_})
    if (file >= 0) close(file);
}

void Process::signal(int number) const {
  if (!status_) kill(pid_, number);
}

bool Process::is_over(Clock::time_point deadline) {
  while (!status_) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd entry = {watch_, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    int status = 0;
    if (ready > 0 && waitpid(pid_, &status, 0) == pid_) {
      status_ = status;
      ended_ = Clock::now();
    } else if (ready == 0) {
      return false;
    } else if (errno != EINTR) {
      fail(str("wait for ", name_));
    }
  }
  return true;
}

// A launcher ends what it started when it is asked to; who does not listen is killed.
void Process::end() {
  if (status_) return;
  kill(-pid_, SIGTERM);
  kill(-pid_, SIGCONT);
  if (is_over(Clock::now() + std::chrono::seconds(3))) return;
  kill(-pid_, SIGKILL);
  is_over(Clock::now() + std::chrono::seconds(30));
}

bool Process::wait_for_line(const std::string& text, Clock::time_point deadline) {
  return wait_for([&] { return str("\n", read_all(output_)).find("\n" + text) != std::string::npos; }, deadline);
}

bool Process::wait_for_log(const std::string& text, Clock::time_point deadline) {
  return wait_for([&] { return read_all(log_).find(text) != std::string::npos; }, deadline);
}

bool Process::wait_for(const std::function<bool()>& is_there, Clock::time_point deadline) {
  while (!is_there()) {
    const auto soon = Clock::now() + milliseconds(5);
    if (is_over(std::min(soon, deadline))) return is_there();
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

Ending Process::wait(Clock::time_point deadline) {
  Ending ending;
  ending.name = name_;
  ending.was_late = !is_over(deadline);
  if (ending.was_late) end();
  ending.output = read_all(output_);
  ending.log = read_all(log_);
  if (status_ && WIFEXITED(*status_) && !ending.was_late) ending.exit_code = WEXITSTATUS(*status_);
  ending.lasted = ended_ - started_;
  return ending;
}

std::vector<Ending> join_all(const std::vector<std::unique_ptr<Process>>& processes, std::chrono::seconds limit) {
  const auto deadline = Process::Clock::now() + limit;
  // All of them are looked at in turn, so that each one's end is noticed when it comes.
  const auto is_running = [](const auto& process) { return !process->is_over(Process::Clock::now() + milliseconds(2)); };
  while (Process::Clock::now() < deadline && std::ranges::count_if(processes, is_running) > 0) continue;
  std::vector<Ending> endings;
  for (const auto& process : processes) endings.push_back(process->wait(deadline));
  return endings;
}

Ending run_process(const std::string& name, const Command& command, std::chrono::seconds limit) {
  return Process(name, command).wait(Process::Clock::now() + limit);
}

std::string fresh_secret() {
  std::random_device random;
  return str("secret-", getpid(), "-", random(), random());
}

Cluster::Cluster(int workers) : secret_(fresh_secret()) {
  for (const int port : free_ports(workers)) addresses_.push_back(str("127.0.0.1:", port));
}

std::string Cluster::tf_config(int worker) const {
  return str(R"({"cluster": {"worker": [")", lockstep::join("\", \"", addresses_),
             R"("]}, "task": {"type": "worker", "index": )", worker, "}}");
}

Command Cluster::command(int worker, const std::vector<std::string>& words) const {
  Command command{{LOCKSTEP_WORKER}, {{"TF_CONFIG", tf_config(worker)}, {"LOCKSTEP_JOB_SECRET", secret_}}};
  command.words.insert(command.words.end(), words.begin(), words.end());
  return command;
}

Process& Cluster::start(int worker, const std::vector<std::string>& words, const Variables& variables) {
  auto what = command(worker, words);
  for (const auto& [name, value] : variables) what.variables[name] = value;
  processes_.push_back(std::make_unique<Process>(str("worker ", worker), what));
  return *processes_.back();
}

void Cluster::start_all(const std::vector<std::string>& words) {
  for (int worker = 0; worker < size(); ++worker) start(worker, words);
}

std::vector<Ending> Cluster::join(std::chrono::seconds limit) {
  auto endings = join_all(processes_, limit);
  processes_.clear();
  return endings;
}

}  // namespace lockstep::testing
