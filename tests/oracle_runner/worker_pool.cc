#include "tests/oracle_runner/worker_pool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "tests/support/free_ports.h"

namespace lockstep::oracle {
namespace {

constexpr int kAnswerMilliseconds = 60'000;

std::vector<std::string> environment_of(const Json& cluster, int index) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, "TF_CONFIG=", 10) != 0) all.emplace_back(*entry);
  const Json config = {{"cluster", cluster}, {"task", {{"type", "worker"}, {"index", index}}}};
  all.push_back("TF_CONFIG=" + config.dump());
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (auto& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

WorkerPool::WorkerPool(int workers) {
  signal(SIGPIPE, SIG_IGN);
  Json cluster = {{"worker", Json::array()}};
  for (const int port : testing::free_ports(workers)) cluster["worker"].push_back("127.0.0.1:" + std::to_string(port));
  for (int index = 0; index < workers; ++index) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    auto environment = environment_of(cluster, index);
    std::vector<std::string> command = {"oracle_test", "--worker"};
    Worker worker{0, in[1], out[0]};
    const int failed = posix_spawn(&worker.process, "/proc/self/exe", &actions, nullptr, pointers(command).data(),
                                   pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    if (failed != 0) throw std::runtime_error("a worker process cannot be started");
    workers_.push_back(worker);
  }
}

WorkerPool::~WorkerPool() {
  for (auto& worker : workers_) {
    close(worker.to);
    close(worker.from);
  }
  // At the end of their input they end by themselves; a few seconds are enough.
  for (auto& worker : workers_) {
    for (int wait = 0; wait < 100; ++wait) {
      if (waitpid(worker.process, nullptr, WNOHANG) != 0) break;
      if (wait == 99) kill(worker.process, SIGKILL);
      usleep(wait == 99 ? 1 : 50'000);
    }
  }
}

std::string WorkerPool::read_line(Worker& worker) {
  while (worker.read.find('\n') == std::string::npos) {
    pollfd ready{worker.from, POLLIN, 0};
    if (poll(&ready, 1, kAnswerMilliseconds) <= 0) throw std::runtime_error("a worker gives no answer");
    std::array<char, 65536> data{};
    const auto bytes = read(worker.from, data.data(), data.size());
    if (bytes <= 0) throw std::runtime_error("a worker has ended");
    worker.read.append(data.data(), static_cast<std::size_t>(bytes));
  }
  const auto end = worker.read.find('\n');
  auto line = worker.read.substr(0, end);
  worker.read.erase(0, end + 1);
  return line;
}

std::vector<Json> WorkerPool::ask(const Case& one) {
  const auto question = one.input.dump() + "\n";
  for (const auto& worker : workers_)
    if (write(worker.to, question.data(), question.size()) != static_cast<ssize_t>(question.size()))
      throw std::runtime_error("a worker takes no question");
  std::vector<Json> answers;
  for (auto& worker : workers_) answers.push_back(Json::parse(read_line(worker)));
  return answers;
}

namespace {

std::map<int, std::unique_ptr<WorkerPool>>& pools() {
  static std::map<int, std::unique_ptr<WorkerPool>> all;
  return all;
}

}  // namespace

WorkerPool& pool_of(int workers) {
  auto& pool = pools()[workers];
  if (pool == nullptr) pool = std::make_unique<WorkerPool>(workers);
  return *pool;
}

void end_pool(int workers) { pools()[workers].reset(); }

}  // namespace lockstep::oracle
