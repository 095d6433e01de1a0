#include "lockstep/cluster/clock_offset.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(ClockOffset, IsNothingBeforeTheFirstAnswer) { EXPECT_EQ(ClockOffset().value(), 0ns); }

TEST(ClockOffset, TheWayThereAndBackIsTakenOff) {
  ClockOffset offset;
  offset.add(100ms, 5s + 103ms, 106ms);
  EXPECT_EQ(offset.value(), 5s);
  EXPECT_EQ(offset.error(), 3ms);
}

TEST(ClockOffset, TheQuickestAnswerCounts) {
  ClockOffset offset;
  offset.add(0ms, 2s, 4ms);      // 2 ms on the way back
  offset.add(10ms, 2510ms, 1s);  // something was slow
  EXPECT_EQ(offset.value(), 2s - 2ms);
}

TEST(ClockOffset, OldAnswersAreForgotten) {
  ClockOffset offset;
  offset.add(0ms, 10s, 0ms);
  for (int k = 0; k < 16; ++k) offset.add(0ms, 7s + 1ms, 2ms);
  EXPECT_EQ(offset.value(), 7s);
}

TEST(ClockOffset, AClockThatIsSetBackMeanwhileIsNoNegativeTime) {
  ClockOffset offset;
  offset.add(10s, 10s, 4s);
  EXPECT_EQ(offset.error(), 0ns);
}

}  // namespace
}  // namespace lockstep
