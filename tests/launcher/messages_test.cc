#include "tools/lockstep/messages.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/testing.h"
#include "tools/lockstep/link.h"

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::ThrowsCode;

TEST(Messages, ComeBackFromAnyPieces) {
  const std::vector<Message> sent = {{MessageKind::kSignal, pack_numbers({15, -1})},
                                     {MessageKind::kAlive, ""},
                                     {MessageKind::kOutput, pack_output(3, std::string("\0\n\xff", 3))}};
  std::string bytes;
  for (const auto& message : sent) bytes += to_bytes(message);
  MessageReader reader(1000);
  std::vector<Message> received;
  for (const char byte : bytes) {
    reader.add({&byte, 1});
    while (const auto message = reader.next()) received.push_back(*message);
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(unpack_numbers(received[0].body), (std::vector<int>{15, -1}));
  EXPECT_EQ(unpack_output(received[2].body), std::pair(std::size_t{3}, std::string("\0\n\xff", 3)));
}

TEST(Messages, OfEveryKindAreKnown) {
  MessageReader reader(1000);
  for (const auto kind : {MessageKind::kHello, MessageKind::kPrepare, MessageKind::kReady, MessageKind::kStart,
                          MessageKind::kRefused, MessageKind::kOutput, MessageKind::kEnded, MessageKind::kSignal,
                          MessageKind::kAgain, MessageKind::kHold, MessageKind::kGo, MessageKind::kAlive, MessageKind::kBye}) {
    reader.add(to_bytes({kind, "x"}));
    EXPECT_EQ(reader.next(), (Message{kind, "x"}));
  }
}

TEST(Messages, CarryEveryField) {
  const Hello hello{"build", "host", 1, 2, 3, "secret", "address"};
  EXPECT_EQ(unpack_hello(pack(hello)), hello);
  const Work work{{{{"worker", 1}, {{"A", "x=y"}}}, {{"ps", 0}, {}}}, {"a", "", "b c"}, "/", {{"B", "\xff"}}, 4, 5s, 6s};
  const auto copy = unpack_work(pack(work));
  ASSERT_EQ(copy.tasks.size(), 2U);
  EXPECT_EQ(copy.tasks[0].task, work.tasks[0].task);
  EXPECT_EQ(copy.tasks[0].environment, work.tasks[0].environment);
  EXPECT_EQ(copy.command, work.command);
  EXPECT_EQ(copy.variables, work.variables);
  EXPECT_EQ(copy.attempt, 4);
  EXPECT_EQ(copy.grace, 5s);
  EXPECT_EQ(copy.save_grace, 6s);
  const auto report = unpack_report(pack(Report{7, {1, 2, "lost"}, {"a", "b"}}));
  EXPECT_EQ(report.task, 7U);
  EXPECT_EQ(report.ending.lost, "lost");
  EXPECT_EQ(report.last_lines.size(), 2U);
  EXPECT_EQ(unpack_farewell(pack(Farewell{1, "why"})).reason, "why");
}

TEST(Messages, WhatIsNoneIsRefused) {
  MessageReader reader(1000);
  reader.add("no message at all");
  EXPECT_THAT([&] { reader.next(); }, ThrowsCode(ErrorCode::kDataLoss, "no such message"));
  MessageReader large(1000);
  large.add(to_bytes({MessageKind::kOutput, std::string(1001, 'x')}));
  EXPECT_THAT([&] { large.next(); }, ThrowsCode(ErrorCode::kDataLoss, "1001 bytes"));
  const auto body = pack(Hello{"build", "host"});
  EXPECT_THAT([&] { unpack_hello(body.substr(1)); }, ThrowsCode(ErrorCode::kDataLoss, "launcher and node"));
  EXPECT_THAT([&] { unpack_hello(body + "x"); }, ThrowsCode(ErrorCode::kDataLoss, "more in it"));
  EXPECT_THAT([&] { unpack_work(pack_output(1'000'000'000, "")); }, ThrowsCode(ErrorCode::kDataLoss, "too long"));
}

struct Ends {
  Ends() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  }
  ~Ends() {
    for (const int end : pair)
      if (end >= 0) close(end);
  }
  int pair[2] = {-1, -1};
};

TEST(Links, TakeAGreetingAfterABanner) {
  Ends ends;
  EXPECT_EQ(write(ends.pair[1], "Welcome!\n", 9), 9);
  Link launcher(ends.pair[0], ends.pair[0], Link::Greeting::kExpected, 30s);
  Link node(ends.pair[1], ends.pair[1], Link::Greeting::kSent, 30s);
  EXPECT_TRUE(launcher.work().empty());
  node.send({MessageKind::kRefused, "no"});
  EXPECT_EQ(launcher.work(), (std::vector<Message>{{MessageKind::kRefused, "no"}}));
  EXPECT_EQ(launcher.take_banner(), "Welcome!\n");
}

TEST(Links, SaySilenceAndClosedEnds) {
  Ends ends;
  Link node(ends.pair[1], ends.pair[1], Link::Greeting::kSent, 0s);
  node.work();
  EXPECT_THAT(node.broken(), ::testing::HasSubstr("nothing was heard"));
  Link other(ends.pair[0], ends.pair[0], Link::Greeting::kExpected, 30s);
  close(std::exchange(ends.pair[1], -1));
  other.work();
  EXPECT_THAT(other.broken(), ::testing::HasSubstr("closed"));
}

// One that does not read must not make the other wait.
TEST(Links, NeverBlock) {
  Ends ends;
  Link node(ends.pair[1], ends.pair[1], Link::Greeting::kSent, 30s);
  while (!node.is_full()) node.send({MessageKind::kOutput, pack_output(0, std::string(10'000, 'x'))});
  Link launcher(ends.pair[0], ends.pair[0], Link::Greeting::kExpected, 30s);
  std::size_t received = 0;
  for (int round = 0; round < 1000 && !node.is_flushed(); ++round) {
    node.work();
    received += launcher.work().size();
  }
  EXPECT_TRUE(node.is_flushed());
  EXPECT_GE(received, 100U);
}

}  // namespace
}  // namespace lockstep::tool
