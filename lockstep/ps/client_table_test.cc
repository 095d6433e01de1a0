#include "lockstep/ps/client_table.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;

TEST(ClientTable, ARepetitionWaitsForTheFirst) {
  ClientTable table(4);
  std::atomic<int> times{0};
  std::atomic<bool> may_end{false};
  std::vector<std::string> answers(3);
  const Sender sender{1, 1, 1};
  {
    std::vector<std::jthread> threads;
    for (auto& answer : answers)
      threads.emplace_back([&] {
        answer = table.once(
            sender,
            [&] {
              ++times;
              may_end.wait(false);
              return std::string("done");
            },
            Deadline::after(std::chrono::seconds(20)));
      });
    while (times == 0) std::this_thread::yield();
    EXPECT_THAT(
        [&] {
          table.once(
              sender, [] { return std::string(); }, Deadline::after(std::chrono::milliseconds(1)));
        },
        ThrowsCode(ErrorCode::kDeadlineExceeded, "still"));
    may_end = true;
    may_end.notify_all();
  }
  EXPECT_THAT(answers, ElementsAre("done", "done", "done"));
  EXPECT_EQ(times, 1);
}

TEST(ClientTable, RemembersErrorsUnlessTheyMayPass) {
  ClientTable table(4);
  const auto deadline = Deadline::after(std::chrono::seconds(20));
  int times = 0;
  const auto failing = [&](ErrorCode code) {
    return [&times, code]() -> std::string {
      ++times;
      throw Error(code, "no");
    };
  };
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT([&] { table.once({1, 1, 1}, failing(ErrorCode::kNotFound), deadline); }, ThrowsCode(ErrorCode::kNotFound));
  EXPECT_EQ(times, 1);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(
        [&] {
          table.once({1, 2, 1}, failing(ErrorCode::kUnavailable), deadline);
        },
        ThrowsCode(ErrorCode::kUnavailable));
  EXPECT_EQ(times, 3);
  EXPECT_EQ(table.once(
                {1, 2, 1}, [] { return std::string("yes"); }, deadline),
            "yes");
}

TEST(ClientTable, IsBounded) {
  ClientTable table(3);
  const auto deadline = Deadline::after(std::chrono::seconds(20));
  const auto ask = [&](std::uint64_t client, std::uint64_t sequence, std::uint64_t mark) {
    return table.once(
        {client, sequence, mark}, [] { return std::string("x"); }, deadline);
  };
  for (std::uint64_t client = 1; client <= 5; ++client) ask(client, 1, 1);
  EXPECT_EQ(table.size(), 3U);
  EXPECT_FALSE(table.state(1).is_known);
  EXPECT_TRUE(table.state(5).is_known);
  for (std::uint64_t i = 2; i <= kMostUnanswered; ++i) ask(5, i, 1);
  EXPECT_THAT([&] { ask(5, 5'000, 1); }, ThrowsCode(ErrorCode::kInvalidArgument, "1024"));
  ask(5, 5'001, 1'000);
  EXPECT_EQ(table.state(5).answers, kMostUnanswered - 999 + 1);
  EXPECT_THAT([&] { ask(5, 999, 999); }, ThrowsCode(ErrorCode::kFailedPrecondition, "late"));
  table.once(
      {6, 1, 1},
      [&] {
        EXPECT_NO_THROW(ask(7, 1, 1));
        EXPECT_NO_THROW(ask(8, 1, 1));
        EXPECT_NO_THROW(ask(9, 1, 1));
        EXPECT_TRUE(table.state(6).is_known);  // it is busy
        return std::string();
      },
      deadline);
}

}  // namespace
}  // namespace lockstep::ps
