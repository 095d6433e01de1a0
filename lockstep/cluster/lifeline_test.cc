#include "lockstep/cluster/lifeline.h"

#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// What a server was told, with a way to wait for it.
struct Told {
  LifelineServer::Events events() {
    return {.on_lost = [this](std::uint64_t member, const std::string& how) { add(str("lost ", member, ": ", how)); },
            .on_left = [this](std::uint64_t member) { add(str("left ", member)); }};
  }
  void add(const std::string& line) {
    const std::lock_guard lock(mu);
    lines.push_back(line);
    news.notify_all();
  }
  std::string wait(std::chrono::milliseconds longest = 5s) {
    std::unique_lock lock(mu);
    news.wait_for(lock, longest, [&] { return !lines.empty(); });
    if (lines.empty()) return "nothing";
    auto line = lines.front();
    lines.erase(lines.begin());
    return line;
  }

  std::mutex mu;
  std::condition_variable news;
  std::vector<std::string> lines;
};

Address at(const LifelineServer& server) { return {"127.0.0.1", server.port()}; }

// A member's connection without its thread, for processes that are forked.
internal::Socket connect_with(const Address& server, std::uint64_t ticket) {
  auto socket = internal::Socket::connect(server, Deadline::after(5s));
  const auto greeting = internal::LifelineBytes::show(ticket);
  socket.send(greeting.data(), greeting.size(), Deadline::after(5s));
  return socket;
}

// Another process that is a member. It does `first` and waits to be killed; `said` gets what `first` returned.
pid_t fork_member(const LifelineServer& server, std::uint64_t ticket, pid_t (*first)(), pid_t& said) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const auto child = fork();
  if (child == 0) {
    alarm(30);
    const auto line = connect_with(at(server), ticket);
    const auto result = first();
    if (write(ready[1], &result, sizeof result) != sizeof result) _exit(1);
    pause();
    _exit(0);
  }
  close(ready[1]);
  const bool is_ready = read(ready[0], &said, sizeof said) == static_cast<ssize_t>(sizeof said);
  close(ready[0]);
  return is_ready ? child : -1;
}

pid_t fork_idler() {
  const auto child = fork();
  if (child != 0) return child;
  alarm(30);
  pause();
  _exit(0);
}

void ignore(const std::string&) {}
void ignore_end() {}

TEST(Lifeline, AGoodbyeIsNotALoss) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  { const Lifeline line(at(server), server.admit(7), Deadline::after(5s), ignore, ignore_end); }
  EXPECT_EQ(told.wait(), "left 7");
}

TEST(Lifeline, AKilledProcessIsNoticedAtOnce) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  const auto ticket = server.admit(3);
  pid_t said = 0;
  const auto child = fork_member(server, ticket, getpid, said);
  ASSERT_GT(child, 0);
  EXPECT_EQ(told.wait(300ms), "nothing");
  kill(child, SIGSTOP);
  EXPECT_EQ(told.wait(300ms), "nothing") << "a stopped process is late, not dead";
  kill(child, SIGKILL);
  EXPECT_THAT(told.wait(), ::testing::HasSubstr("lost 3"));
  waitpid(child, nullptr, 0);
}

TEST(Lifeline, AForkedChildDoesNotHideTheDeathOfItsParent) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  const auto ticket = server.admit(3);
  pid_t grandchild = 0;
  const auto child = fork_member(server, ticket, fork_idler, grandchild);
  ASSERT_GT(child, 0);
  EXPECT_EQ(told.wait(300ms), "nothing");
  kill(child, SIGKILL);
  EXPECT_THAT(told.wait(2s), ::testing::HasSubstr("lost 3"));
  kill(grandchild, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Lifeline, AMemberHearsTheEndOfTheServer) {
  Told told;
  std::optional<LifelineServer> server;
  server.emplace("127.0.0.1", told.events());
  Told member;
  const Lifeline line(
      at(*server), server->admit(1), Deadline::after(5s), [&](const std::string& how) { member.add(how); },
      [&] { member.add("end"); });
  EXPECT_EQ(member.wait(300ms), "nothing");
  server.reset();
  EXPECT_EQ(member.wait(), "end");
}

TEST(Lifeline, StrangersAreTurnedAway) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  const auto ticket = server.admit(1);
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1000, 'x'), std::string("LOCKSTEP12345678")}) {
    const auto stranger = internal::Socket::connect(at(server), Deadline::after(5s));
    stranger.send(garbage.data(), garbage.size(), Deadline::after(5s));
    ASSERT_TRUE(stranger.wait_readable(Deadline::after(5s)));
    char byte = 0;
    std::string why;
    EXPECT_EQ(stranger.receive(&byte, 1, why), 0);
  }
  std::vector<internal::Socket> silent;
  for (int k = 0; k < 200; ++k) silent.push_back(internal::Socket::connect(at(server), Deadline::after(5s)));
  silent.clear();
  { const Lifeline line(at(server), ticket, Deadline::after(5s), ignore, ignore_end); }
  EXPECT_EQ(told.wait(), "left 1");
}

TEST(Lifeline, AMemberThatSendsGarbageIsLost) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  const auto member = internal::Socket::connect(at(server), Deadline::after(5s));
  const auto bytes = internal::LifelineBytes::show(server.admit(5)) + std::string(100, 'x');
  member.send(bytes.data(), bytes.size(), Deadline::after(5s));
  EXPECT_EQ(told.wait(), "lost 5: it sent what it should not");
}

TEST(LifelineBytes, ComeInAnyPieces) {
  using News = internal::LifelineBytes::News;
  internal::LifelineBytes bytes;
  const std::string all = internal::LifelineBytes::show(42) + "Bx";
  std::vector<News> news;
  for (const char byte : all) {
    bytes.add({&byte, 1});
    for (auto next = bytes.next(); next != News::kNothing; next = bytes.next()) news.push_back(next);
  }
  EXPECT_THAT(news, ::testing::ElementsAre(News::kTicket, News::kGoodbye));
  EXPECT_EQ(bytes.ticket(), 42U);
}

TEST(Lifeline, ATicketServesOnce) {
  Told told;
  LifelineServer server("127.0.0.1", told.events());
  const auto ticket = server.admit(1);
  Told second;
  const Lifeline first(at(server), ticket, Deadline::after(5s), ignore, ignore_end);
  EXPECT_EQ(told.wait(300ms), "nothing");
  const Lifeline again(
      at(server), ticket, Deadline::after(5s), [&](const std::string& how) { second.add(how); }, ignore_end);
  EXPECT_THAT(second.wait(), ::testing::HasSubstr("connection"));
}

TEST(Lifeline, NobodyThereIsATypedError) {
  int port = 0;
  {
    const auto listener = internal::Socket::listen({"127.0.0.1", 0});
    port = listener.port();
    EXPECT_THAT(
        [&] {
          internal::Socket::listen({"127.0.0.1", port});
        },
        testing::ThrowsCode(ErrorCode::kFailedPrecondition, "another process"));
  }
  EXPECT_THAT(
      [&] {
        internal::Socket::connect({"127.0.0.1", port}, Deadline::after(5s));
      },
      testing::ThrowsCode(ErrorCode::kUnavailable, "127.0.0.1"));
  EXPECT_THAT(
      [&] {
        internal::Socket::connect({"no-such-host.invalid", 1}, Deadline::after(5s));
      },
      testing::ThrowsCode(ErrorCode::kNotFound, "no-such-host.invalid"));
}

}  // namespace
}  // namespace lockstep
