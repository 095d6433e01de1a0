#include "lockstep/base/gate.h"

#include <atomic>
#include <chrono>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::on_threads;

TEST(Gate, EveryAdvanceMovesTheCounterByOne) {
  Gate gate;
  EXPECT_EQ(gate.value(), 0U);
  gate.advance();
  gate.advance();
  EXPECT_EQ(gate.value(), 2U);
}

TEST(Gate, ACounterThatHasMovedIsNotWaitedForEvenAfterTheDeadline) {
  Gate gate;
  gate.advance();
  EXPECT_TRUE(gate.wait_briefly(0));
  EXPECT_TRUE(gate.wait(0, Deadline::after(seconds(-1))));
}

TEST(Gate, AWaitEndsWithTheDeadlineAndNotBefore) {
  Gate gate;
  const auto deadline = Deadline::after(milliseconds(20));
  EXPECT_FALSE(gate.wait(0, deadline));
  EXPECT_TRUE(deadline.has_passed());
}

TEST(Gate, ADeadlineThatHasPassedEndsTheWaitAtOnce) {
  Gate gate;
  EXPECT_FALSE(gate.wait(0, Deadline::after(seconds(-1))));
}

TEST(Gate, ABriefWaitGivesUpByItself) {
  const Gate gate;
  EXPECT_FALSE(gate.wait_briefly(0));
}

TEST(Gate, OneAdvanceWakesEverybodyWhoSleeps) {
  Gate gate;
  Gate never;
  std::atomic<int> woken{0};
  const auto deadline = Deadline::after(seconds(20));
  on_threads(5, [&](int thread) {
    if (thread == 0) {
      never.wait(0, Deadline::after(milliseconds(30)));  // the others have long stopped spinning
      gate.advance();
    } else if (gate.wait(0, deadline)) {
      woken.fetch_add(1);
    }
  });
  EXPECT_EQ(woken.load(), 4);
  EXPECT_FALSE(deadline.has_passed());  // or they woke by themselves
}

// The numbers are plain: a sanitizer sees it when a hand-over does not order them.
TEST(Gate, WhatWasWrittenBeforeAnAdvanceIsSeenByWhoLeavesTheWait) {
  constexpr std::uint32_t kRounds = 3000;
  Gate ping;
  Gate pong;
  std::uint32_t number = 0;
  std::uint32_t wrong = 0;
  on_threads(2, [&](int thread) {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      if (thread == 0) {
        number = round + 1;
        ping.advance();
        if (!pong.wait(round, Deadline::after(seconds(60))) || number != 0) ++wrong;
      } else {
        if (!ping.wait(round, Deadline::after(seconds(60))) || number != round + 1) return;
        number = 0;
        pong.advance();
      }
    }
  });
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(pong.value(), kRounds);
}

TEST(Gate, NoWakeUpIsLostWithMoreThreadsThanCores) {
  constexpr int kThreads = 8;
  constexpr std::uint32_t kTurns = 1600;
  Gate turn;
  std::atomic<int> gave_up{0};
  const auto deadline = Deadline::after(seconds(60));
  on_threads(kThreads, [&](int thread) {
    while (true) {
      const auto now = turn.value();
      if (now >= kTurns) return;
      if (now % kThreads == static_cast<std::uint32_t>(thread)) {
        turn.advance();
      } else if (!turn.wait(now, deadline)) {
        gave_up.fetch_add(1);
        return;
      }
    }
  });
  EXPECT_EQ(gave_up.load(), 0);
  EXPECT_FALSE(deadline.has_passed());
  EXPECT_EQ(turn.value(), kTurns);
}

}  // namespace
}  // namespace lockstep
