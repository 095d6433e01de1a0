#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "lockstep/base/str.h"
#include "lockstep/cluster/socket.h"
#include "tests/multi_worker/cluster.h"

// Clusters that are described wrongly, or whose workers were told different things: typed errors, soon, on those that can
// know.

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr auto kAtOnce = 10s;  // with the start of a program that LibTorch is in, on a busy machine
constexpr auto kJoin = 4s;     // how long workers wait for each other here
constexpr auto kLimit = 40s;

const std::vector<std::string> kTrain = {"train", "steps=2", "timeout=10", str("join=", kJoin.count())};

void expect_error(const Ending& ending, const std::string& code, const std::vector<std::string>& words,
                  std::chrono::seconds within = kAtOnce) {
  EXPECT_EQ(ending.error_code(), code) << ending;
  EXPECT_EQ(ending.exit_code, 3) << ending;
  EXPECT_LT(ending.lasted, within) << ending;
  for (const auto& word : words) EXPECT_THAT(ending.after("error").value_or(""), HasSubstr(word)) << ending.name;
}

// One process with this TF_CONFIG, in which "A", "B" and "C" stand for addresses that nobody uses.
struct Description {
  std::string what;
  std::string tf_config;
  std::vector<std::string> words;  // in the error
};

const std::vector<Description>& wrong_descriptions() {
  static const std::vector<Description> all = {
      {"not JSON", R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "worker" "index": 0}})", {"TF_CONFIG", "column"}},
      {"cut off", R"({"cluster": {"worker": ["A")", {"TF_CONFIG"}},
      {"empty", "", {"TF_CONFIG"}},
      {"not an object", R"(["worker"])", {"TF_CONFIG"}},
      {"a cluster that is a list", R"({"cluster": ["A"], "task": {"type": "worker", "index": 0}})", {"cluster"}},
      {"no task", R"({"cluster": {"worker": ["A", "B"]}})", {"task"}},
      {"no index", R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "worker"}})", {"task"}},
      {"an index past the end",
       R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "worker", "index": 2}})",
       {"2", "worker"}},
      {"a negative index", R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "worker", "index": -1}})", {"-1"}},
      {"an index that is a word",
       R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "worker", "index": "first"}})",
       {"first"}},
      {"an unknown role", R"({"cluster": {"worker": ["A", "B"]}, "task": {"type": "boss", "index": 0}})", {"boss"}},
      {"an unknown job", R"({"cluster": {"worker": ["A"], "boss": ["B"]}, "task": {"type": "worker", "index": 0}})", {"boss"}},
      {"two chiefs",
       R"({"cluster": {"chief": ["A", "B"], "worker": ["C"]}, "task": {"type": "worker", "index": 0}})",
       {"chief"}},
      {"a job without tasks", R"({"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}})", {"worker"}},
      {"a parameter server that trains",
       R"({"cluster": {"worker": ["A", "B"], "ps": ["C"]}, "task": {"type": "ps", "index": 0}})",
       {"ps"}},
      {"worker 0 without a port",
       R"({"cluster": {"worker": ["127.0.0.1", "B"]}, "task": {"type": "worker", "index": 0}})",
       {"127.0.0.1", "port"}},
      {"worker 0 without a port, seen from 1",
       R"({"cluster": {"worker": ["127.0.0.1", "B"]}, "task": {"type": "worker", "index": 1}})",
       {"127.0.0.1", "port"}},
      {"worker 1 without a port",
       R"({"cluster": {"worker": ["A", "127.0.0.1"]}, "task": {"type": "worker", "index": 1}})",
       {"worker 1", "port"}},
      {"worker 1 without a port, seen from 0",
       R"({"cluster": {"worker": ["A", "127.0.0.1"]}, "task": {"type": "worker", "index": 0}})",
       {"worker 1", "port"}},
      {"a port that is none",
       R"({"cluster": {"worker": ["127.0.0.1:222222", "B"]}, "task": {"type": "worker", "index": 1}})",
       {"222222"}}};
  return all;
}

std::string with_addresses(std::string text) {
  const auto ports = free_ports(3);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto name = str('"', static_cast<char>('A' + i), '"');
    if (const auto at = text.find(name); at != std::string::npos)
      text.replace(at, name.size(), str("\"127.0.0.1:", ports[i], "\""));
  }
  return text;
}

class WrongDescription : public ::testing::TestWithParam<int> {
 protected:
  // All of them at once: they take their time to start, and none waits for another.
  static void SetUpTestSuite() {
    std::vector<std::unique_ptr<Process>> processes;
    for (const auto& one : wrong_descriptions()) {
      Command command{{LOCKSTEP_WORKER},
                      {{"TF_CONFIG", with_addresses(one.tf_config)}, {"LOCKSTEP_JOB_SECRET", fresh_secret()}}};
      command.words.insert(command.words.end(), kTrain.begin(), kTrain.end());
      processes.push_back(std::make_unique<Process>(one.what, command));
    }
    endings() = join_all(processes, kLimit);
  }
  static std::vector<Ending>& endings() {
    static std::vector<Ending> kept;
    return kept;
  }
};

TEST_P(WrongDescription, IsAnInvalidArgument) {
  const auto at = static_cast<std::size_t>(GetParam());
  expect_error(endings().at(at), "kInvalidArgument", wrong_descriptions()[at].words, kLimit);
}

std::string test_name(const ::testing::TestParamInfo<int>& info) {
  auto name = wrong_descriptions()[static_cast<std::size_t>(info.param)].what;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(OfTfConfig, WrongDescription, ::testing::Range(0, static_cast<int>(wrong_descriptions().size())),
                         test_name);

// Worker 1 of two is refused by worker 0, which says so, and goes on waiting for the right one.
void expect_refused(const std::vector<Ending>& endings, const std::vector<std::string>& words) {
  expect_error(endings.at(1), "kFailedPrecondition", words);
  expect_error(endings.at(0), "kDeadlineExceeded", {"worker 1"}, kAtOnce + kJoin);
  EXPECT_THAT(endings[0].log, HasSubstr("does not admit worker 1")) << endings[0];
}

TEST(Joining, WithAnotherSecretIsRefused) {
  Cluster cluster(2);
  cluster.start(0, kTrain);
  cluster.start(1, kTrain, {{"LOCKSTEP_JOB_SECRET", "not this one"}});
  const auto endings = cluster.join(kLimit);
  expect_refused(endings, {"secret"});
  EXPECT_EQ(endings[1].output.find(cluster.secret()), std::string::npos) << "a secret is not shown";
}

TEST(Joining, WithoutASecretIsRefused) {
  Cluster cluster(2);
  cluster.start(0, kTrain);
  cluster.start(1, kTrain, {{"LOCKSTEP_JOB_SECRET", ""}});
  expect_refused(cluster.join(kLimit), {"secret"});
}

TEST(Joining, AnotherClusterIsRefused) {
  Cluster cluster(2);
  const Cluster other(2);
  cluster.start(0, kTrain);
  // The same coordinator, and another second worker.
  cluster.start(1, kTrain,
                {{"TF_CONFIG", str(R"({"cluster": {"worker": [")", cluster.addresses()[0], R"(", ")", other.addresses()[1],
                                   R"("]}, "task": {"type": "worker", "index": 1}})")}});
  expect_refused(cluster.join(kLimit), {other.addresses()[1], cluster.addresses()[1]});
}

TEST(Joining, AClusterOfAnotherSizeIsRefused) {
  Cluster cluster(2);
  cluster.start(0, kTrain);
  cluster.start(1, kTrain,
                {{"TF_CONFIG", str(R"({"cluster": {"worker": [")", join(R"(", ")", cluster.addresses()),
                                   R"(", "127.0.0.1:19999"]}, "task": {"type": "worker", "index": 1}})")}});
  expect_refused(cluster.join(kLimit), {"127.0.0.1:19999"});
}

Variables torchrun(int rank, int world_size, int port) {
  return {{"RANK", str(rank)}, {"WORLD_SIZE", str(world_size)}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", str(port)}};
}

TEST(Joining, WithAnotherWorldSizeIsRefused) {
  const int port = free_ports(1)[0];
  std::vector<std::unique_ptr<Process>> processes;
  for (int rank = 0; rank < 2; ++rank) {
    Command command{{LOCKSTEP_WORKER}, torchrun(rank, 2 + rank, port)};
    command.words.insert(command.words.end(), kTrain.begin(), kTrain.end());
    processes.push_back(std::make_unique<Process>(str("worker ", rank), command));
  }
  expect_refused(join_all(processes, kLimit), {});
}

// One of two came second and is refused; the other one waits in vain for `missing`.
void expect_one_refused(const Ending& a, const Ending& b, const std::string& word, const std::string& missing) {
  const bool is_a = a.error_code() == "kFailedPrecondition";
  expect_error(is_a ? a : b, "kFailedPrecondition", {word});
  const auto& other = is_a ? b : a;
  EXPECT_THAT(other.error_code(), AnyOf("kDeadlineExceeded", "kUnavailable")) << other;
  EXPECT_THAT(other.after("error").value_or(""), HasSubstr(missing)) << other;
  EXPECT_LT(other.lasted, kAtOnce + kJoin);
}

TEST(Joining, AnIndexThatIsTakenIsRefused) {
  Cluster cluster(3);
  for (const int worker : {0, 1, 1}) cluster.start(worker, kTrain);
  const auto endings = cluster.join(kLimit);
  expect_one_refused(endings[1], endings[2], "its place is taken by process", "worker 2");
  expect_error(endings[0], "kDeadlineExceeded", {"worker 2"}, kAtOnce + kJoin);
}

TEST(Joining, TwoCoordinatorsCannotHaveOnePort) {
  Cluster cluster(2);
  for (const int worker : {0, 0}) cluster.start(worker, kTrain);
  const auto endings = cluster.join(kLimit);
  expect_one_refused(endings[0], endings[1], cluster.addresses()[0], "worker 1");
}

TEST(Joining, APortInUseIsNamed) {
  Cluster cluster(2);
  const auto& address = cluster.addresses()[0];
  const auto other = internal::Socket::listen({"127.0.0.1", std::stoi(address.substr(address.find(':') + 1))});
  cluster.start_all(kTrain);
  const auto endings = cluster.join(kLimit);
  expect_error(endings[0], "kFailedPrecondition", {address});
  expect_error(endings[1], "kDeadlineExceeded", {address}, kAtOnce + kJoin);
}

TEST(Joining, ANameThatDoesNotResolveIsNamed) {
  const auto config = [](int worker) {
    return str(
        R"({"cluster": {"worker": ["no-such-host.invalid:2222", "127.0.0.1:2223"]}, "task": {"type": "worker", "index": )",
        worker, "}}");
  };
  Cluster cluster(2);
  for (const int worker : {0, 1}) cluster.start(worker, kTrain, {{"TF_CONFIG", config(worker)}});
  for (const auto& ending : cluster.join(kLimit)) {
    EXPECT_THAT(ending.error_code(), AnyOf("kNotFound", "kDeadlineExceeded")) << ending;
    EXPECT_THAT(ending.after("error").value_or(""), HasSubstr("no-such-host.invalid")) << ending;
    EXPECT_LT(ending.lasted, kAtOnce + kJoin);
  }
}

TEST(Joining, WhoNeverComesIsNamed) {
  Cluster cluster(3);
  cluster.start(0, kTrain);
  cluster.start(2, kTrain);
  const auto endings = cluster.join(kLimit);
  expect_error(endings[0], "kDeadlineExceeded", {"worker 1"}, kAtOnce + kJoin);
  // It may have heard of the coordinator's giving up before its own time was over.
  EXPECT_THAT(endings[1].error_code(), AnyOf("kDeadlineExceeded", "kUnavailable")) << endings[1];
  EXPECT_THAT(endings[1].after("error").value_or(""), HasSubstr("worker 1")) << endings[1];
}

TEST(Joining, WithoutTheCoordinatorIsAnError) {
  Cluster cluster(2);
  cluster.start(1, kTrain);
  expect_error(cluster.join(kLimit)[0], "kDeadlineExceeded", {cluster.addresses()[0]}, kAtOnce + kJoin);
}

TEST(Joining, WithAnUnknownEngineIsAnError) {
  Cluster cluster(2);
  cluster.start_all({"train", "engine=pigeons"});
  for (const auto& ending : cluster.join(kLimit)) expect_error(ending, "kInvalidArgument", {"pigeons"});
}

TEST(Joining, WithNcclAndWithoutGpusIsAnErrorOfBoth) {
  Cluster cluster(2);
  cluster.start_all({"train", "steps=2", "device=CPU:0", "engine=nccl", "join=5"});
  for (const auto& ending : cluster.join(kLimit))
    expect_error(ending, "kInvalidArgument", {"worker 0", "not on a GPU", "AUTO"});
}

TEST(Joining, WithAnotherEngineIsAnErrorOfBoth) {
  Cluster cluster(2);
  cluster.start(0, {"train", "steps=2", "engine=shm", "timeout=5", "join=5"});
  cluster.start(1, {"train", "steps=2", "engine=gloo", "timeout=5", "join=5"});
  for (const auto& ending : cluster.join(kLimit)) {
    EXPECT_EQ(ending.exit_code, 3) << ending;
    EXPECT_THAT(ending.error_code(), AnyOf("kInvalidArgument", "kFailedPrecondition")) << ending;
    EXPECT_LT(ending.lasted, kAtOnce) << ending;
  }
}

}  // namespace
}  // namespace lockstep::testing
