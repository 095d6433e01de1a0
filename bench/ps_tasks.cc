#include "bench/ps_tasks.h"

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/simple_cluster_resolver.h"

namespace bench {
namespace {

// Ports that were free together.
std::vector<std::string> free_addresses(int count) {
  std::vector<int> sockets;
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(sockets.back(), raw, size) != 0 || getsockname(sockets.back(), raw, &size) != 0)
      throw std::runtime_error("there is no free port");
    addresses.push_back(lockstep::str("127.0.0.1:", ntohs(address.sin_port)));
  }
  for (const int one : sockets) close(one);
  return addresses;
}

std::string quoted(const std::vector<std::string>& texts) { return "[\"" + lockstep::join("\", \"", texts) + "\"]"; }

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> texts;
  for (char** one = environ; *one != nullptr; ++one) texts.emplace_back(*one);
  for (const auto& [name, value] : environment) texts.push_back(name + "=" + value);
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  std::vector<std::string> words{"ps_bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.emplace_back("--child");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), all.data()) != 0)
    throw std::runtime_error("a child process could not be started");
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Child::end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

Tasks::Tasks(int servers, int workers) {
  setenv("LOCKSTEP_JOB_SECRET", std::to_string(lockstep::unguessable_number()).c_str(), 1);
  const auto all = free_addresses(1 + servers + workers);
  const std::vector<std::string> chief(all.begin(), all.begin() + 1);
  const std::vector<std::string> ps(all.begin() + 1, all.begin() + 1 + servers);
  const std::vector<std::string> worker(all.begin() + 1 + servers, all.end());
  const auto start = [&](const char* job, int index) {
    const auto config = lockstep::str(R"({"cluster": {"chief": )", quoted(chief), R"(, "ps": )", quoted(ps), R"(, "worker": )",
                                      quoted(worker), R"(}, "task": {"type": ")", job, R"(", "index": )", index, "}}");
    return std::make_unique<Child>(std::vector<std::string>(), std::map<std::string, std::string>{{"TF_CONFIG", config}});
  };
  for (int i = 0; i < servers; ++i) servers_.push_back(start("ps", i));
  for (int i = 0; i < workers; ++i) workers_.push_back(start("worker", i));
  chief_ = std::make_shared<lockstep::SimpleClusterResolver>(
      lockstep::ClusterSpec({{"chief", chief}, {"ps", ps}, {"worker", worker}}),
      lockstep::SimpleClusterOptions{.task_type = "chief", .task_id = 0});
}

}  // namespace bench
