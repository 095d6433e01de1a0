#include "lockstep/cluster/coordination.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "lockstep/base/gate.h"
#include "lockstep/cluster/socket.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ThrowsCode;

constexpr const char* kChildPort = "LOCKSTEP_TEST_COORDINATION_CHILD";

const ClusterSpec kSpec({{"worker", {"127.0.0.1:0", "127.0.0.1:0"}}});
const std::vector<Task> kTasks = {{"worker", 0}, {"worker", 1}};
const CoordinationOptions kOptions{.secret = "secret", .join_timeout = 20s};

Address local(int port) { return {"127.0.0.1", port}; }

struct Coordination : ::testing::Test {
  CoordinationServer server{local(0), kSpec, kTasks, kOptions};
  std::unique_ptr<CoordinationClient> join(std::int64_t index, std::function<void(const Failure&)> on_failure = nullptr) {
    return std::make_unique<CoordinationClient>(local(server.port()), kSpec, Task{"worker", index}, kOptions, on_failure);
  }
};

// The other process of the tests below: this program, started again, which never reaches main().
[[maybe_unused]] const bool kIsChild = [] {
  const char* port = std::getenv(kChildPort);
  if (port == nullptr) return false;
  alarm(60);
  CoordinationClient client(local(std::atoi(port)), kSpec, {"worker", 1}, kOptions);
  client.set_activity({41, "a nap"});
  client.barrier("both are here", 20s);
  client.put("child", std::to_string(getpid()));
  pause();
  _exit(0);
}();

pid_t start_child(int port) {
  const auto child = fork();
  if (child != 0) return child;
  setenv(kChildPort, std::to_string(port).c_str(), 1);
  execl("/proc/self/exe", "unit_a", static_cast<char*>(nullptr));
  _exit(127);
}

TEST_F(Coordination, ValuesAndBarriersReachAllTasks) {
  testing::on_threads(2, [&](int k) {
    const auto client = join(k);
    client->put(str("from ", k), std::string("\0binary", 7));
    EXPECT_EQ(client->get(str("from ", 1 - k), 10s).size(), 7U);
    for (int round = 0; round < 10; ++round) client->barrier("round", 10s);
    client->barrier("the end", 10s);
  });
}

// A port from which everything reaches another one late.
class SlowPort {
 public:
  SlowPort(int to, std::chrono::milliseconds delay) : to_(to), delay_(delay) {}
  int port() const { return listener_.port(); }

 private:
  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested() && !listener_.wait_readable(Deadline::after(50ms))) continue;
    const auto near = listener_.accept();
    if (!near.is_open()) return;
    const auto far = internal::Socket::connect(local(to_), Deadline::after(5s));
    const std::jthread back([&](const std::stop_token& end) { pass_on(far, near, end); });
    pass_on(near, far, stop);
  }
  void pass_on(const internal::Socket& from, const internal::Socket& to, const std::stop_token& stop) const {
    char buffer[4096];
    std::string why;
    while (!stop.stop_requested()) {
      if (!from.wait_readable(Deadline::after(50ms))) continue;
      const auto count = from.receive(buffer, sizeof buffer, why);
      if (count == 0) return;
      std::this_thread::sleep_for(delay_);
      if (count > 0) to.send(buffer, static_cast<std::size_t>(count), Deadline::after(5s));
    }
  }

  const int to_;
  const std::chrono::milliseconds delay_;
  const internal::Socket listener_ = internal::Socket::listen(local(0));
  const std::jthread thread_{[this](const std::stop_token& stop) { serve(stop); }};
};

TEST_F(Coordination, AFarCoordinatorIsReached) {
  const auto zero = join(0);
  const SlowPort slow(server.port(), 300ms);
  EXPECT_EQ(inspect_cluster(local(slow.port()), 5s).members.size(), 1U);
}

TEST_F(Coordination, ALongReasonReachesTheOthers) {
  std::optional<Failure> heard;
  Gate gate;
  const auto zero = join(0, [&](const Failure& failure) {
    heard = failure;
    gate.advance();
  });
  join(1)->fail(ErrorCode::kAborted, "because " + std::string(50 << 20, 'x'));
  ASSERT_TRUE(gate.wait(0, Deadline::after(5s)));
  EXPECT_EQ(heard->code, ErrorCode::kAborted);
  EXPECT_EQ(heard->message.rfind("because xxx", 0), 0U);
}

TEST(CoordinationSecret, MayBeAnyBytes) {
  const CoordinationOptions options{.secret = "\xff\xfe\n", .join_timeout = 5s};
  const CoordinationServer server(local(0), kSpec, kTasks, options);
  EXPECT_NO_THROW(CoordinationClient(local(server.port()), kSpec, {"worker", 1}, options));
  EXPECT_THAT(
      [&] {
        CoordinationClient(local(server.port()), kSpec, {"worker", 0}, {.secret = "\xff", .join_timeout = 5s});
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "secret"));
}

TEST_F(Coordination, ABarrierNamesWhoIsMissing) {
  const auto zero = join(0);
  EXPECT_THAT([&] { zero->barrier("start", 100ms); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "worker 0", "'start'", "worker 1 (has not registered)"));
  EXPECT_THAT([&] { zero->get("nothing", 50ms); }, ThrowsCode(ErrorCode::kDeadlineExceeded, "'nothing'"));
}

TEST_F(Coordination, WhoDoesNotFitIsRefusedWithTheReason) {
  const auto join_as = [&](const ClusterSpec& spec, const Task& task, const std::string& secret) {
    CoordinationClient(local(server.port()), spec, task, {.secret = secret, .join_timeout = 5s});
  };
  EXPECT_THAT([&] { join_as(kSpec, {"worker", 0}, "guess"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "secret"));
  EXPECT_THAT([&] { join_as(kSpec, {"worker", 2}, "secret"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "no such task"));
  const ClusterSpec other({{"worker", {"a:1"}}});
  EXPECT_THAT([&] { join_as(other, {"worker", 0}, "secret"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "a:1"));
  const auto zero = join(0);
  EXPECT_THAT(
      [&] {
        join_as(kSpec, {"worker", 0}, "secret");
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "taken", str(getpid()).c_str()));
}

TEST_F(Coordination, AnErrorOfOneIsEverybodys) {
  std::optional<Failure> heard;
  Gate gate;
  const auto zero = join(0, [&](const Failure& failure) {
    heard = failure;
    gate.advance();
  });
  const auto one = join(1);
  const auto seen = gate.value();
  one->fail(ErrorCode::kInvalidArgument, "worker 1: the data is bad");
  ASSERT_TRUE(gate.wait(seen, Deadline::after(10s)));
  EXPECT_EQ(heard->message, "worker 1: the data is bad");
  EXPECT_EQ(heard->task, (Task{"worker", 1}));
  EXPECT_THAT([&] { zero->barrier("next", 10s); }, ThrowsCode(ErrorCode::kInvalidArgument, "the data is bad"));
}

TEST_F(Coordination, AKilledProcessEndsTheWaitsOfTheOthersByName) {
  const auto child = start_child(server.port());
  const auto zero = join(0);
  zero->barrier("both are here", 20s);
  EXPECT_EQ(zero->get("child", 10s), std::to_string(child));
  kill(child, SIGKILL);
  EXPECT_THAT([&] { zero->barrier("never", 20s); },
              ThrowsCode(ErrorCode::kUnavailable, "worker 1", str("process ", child).c_str(), "closed"));
  waitpid(child, nullptr, 0);
}

TEST_F(Coordination, AStoppedProcessIsLateNotDead) {
  const auto child = start_child(server.port());
  const auto zero = join(0);
  zero->barrier("both are here", 20s);
  zero->get("child", 10s);
  kill(child, SIGSTOP);
  EXPECT_THAT([&] { zero->barrier("never", 300ms); }, ThrowsCode(ErrorCode::kDeadlineExceeded, "worker 1 on host"));
  EXPECT_EQ(zero->failure(), std::nullopt);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(Coordination, AnybodyCanLook) {
  const auto zero = join(0);
  zero->set_activity({3, "thinking"});
  for (int round = 0; round < 100; ++round) {
    const auto view = inspect_cluster(local(server.port()), 5s);
    ASSERT_EQ(view.members.size(), 1U);
    EXPECT_EQ(view.members[0].introduction.secret, "");
    if (view.members[0].activity.step == 3) return;
    std::this_thread::sleep_for(50ms);
  }
  FAIL() << "the activity was never told";
}

// Others may still wait for what it has sent.
TEST_F(Coordination, WhoLeavesHasToldWhatItDidLast) {
  auto zero = join(0);
  zero->set_activity({3, "a sum", 17});
  zero.reset();
  for (int round = 0; round < 100; ++round) {
    const auto view = inspect_cluster(local(server.port()), 5s);
    ASSERT_EQ(view.members.size(), 1U);
    EXPECT_EQ(view.members[0].activity.calls, 17U);
    if (view.members[0].has_left) return;
    std::this_thread::sleep_for(50ms);
  }
  FAIL() << "it has not left";
}

TEST_F(Coordination, OnOneMachineTheClocksAreTheSame) {
  const auto zero = join(0);
  for (int round = 0; round < 100 && zero->clock_offset() == 0ns; ++round) std::this_thread::sleep_for(50ms);
  EXPECT_NE(zero->clock_offset(), 0ns);
  EXPECT_LT(std::chrono::abs(zero->clock_offset()), 1s);
}

TEST(CoordinationStart, TasksMayComeBeforeTheCoordinator) {
  const int port = internal::Socket::listen(local(0)).port();
  std::jthread early([&] {
    CoordinationClient client(local(port), kSpec, {"worker", 1}, kOptions);
    client.barrier("start", 10s);
  });
  std::this_thread::sleep_for(300ms);
  const CoordinationServer server(local(port), kSpec, kTasks, kOptions);
  CoordinationClient zero(local(port), kSpec, {"worker", 0}, kOptions);
  zero.barrier("start", 10s);
  early.join();
}

TEST(CoordinationStart, ACoordinatorThatNeverComesIsNamed) {
  const int port = internal::Socket::listen(local(0)).port();
  EXPECT_THAT(
      [&] {
        CoordinationClient(local(port), kSpec, {"worker", 1}, {.join_timeout = 300ms});
      },
      ThrowsCode(ErrorCode::kDeadlineExceeded, "worker 1", str("127.0.0.1:", port).c_str()));
}

TEST(CoordinationStart, APortInUseIsAnError) {
  const auto listener = internal::Socket::listen(local(0));
  EXPECT_THAT([&] { CoordinationServer(local(listener.port()), kSpec, kTasks); },
              ThrowsCode(ErrorCode::kFailedPrecondition, str("127.0.0.1:", listener.port()).c_str()));
}

TEST(CoordinationStart, ACoordinatorThatGoesIsNoticed) {
  auto impatient = kOptions;
  impatient.farewell = 0s;
  std::optional<CoordinationServer> server;
  server.emplace(local(0), kSpec, kTasks, impatient);
  CoordinationClient zero(local(server->port()), kSpec, {"worker", 0}, kOptions);
  std::jthread end([&] {
    std::this_thread::sleep_for(200ms);
    server.reset();
  });
  EXPECT_THAT([&] { zero.barrier("never", 20s); }, ::testing::Throws<Error>());
  end.join();
  for (int round = 0; round < 100 && !zero.failure(); ++round) std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(zero.failure());
  EXPECT_EQ(zero.failure()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(zero.failure()->task, (Task{"worker", 0}));
}

TEST_F(Coordination, GarbageOnThePortHarmsNobody) {
  const auto zero = join(0);
  const auto stranger = internal::Socket::connect(local(server.port()), Deadline::after(5s));
  const std::string garbage(100'000, 'x');
  try {
    stranger.send(garbage.data(), garbage.size(), Deadline::after(1s));
  } catch (const Error&) {  // turned away
  }
  zero->put("still", "here");
  EXPECT_EQ(zero->get("still", 5s), "here");
}

TEST_F(Coordination, AMessageThatIsTooLargeIsRefused) {
  const auto zero = join(0);
  EXPECT_THAT([&] { zero->put("large", std::string(8 << 20, 'x')); }, ::testing::Throws<Error>());
  zero->put("small", "x");
  EXPECT_EQ(zero->get("small", 5s), "x");
}

TEST(CoordinationStart, CertificatesThatCannotBeReadAreNamed) {
  EXPECT_THAT([] { CoordinationServer(local(0), kSpec, kTasks, {.tls = {.certificate = "/nowhere.pem"}}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "TLS"));
}

}  // namespace
}  // namespace lockstep
