#include "lockstep/base/deadline.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

TEST(Deadline, InTheFutureHasTimeLeft) {
  const auto deadline = Deadline::after(hours(1));
  EXPECT_FALSE(deadline.has_passed());
  EXPECT_GT(deadline.remaining(), nanoseconds(0));
  EXPECT_LE(deadline.remaining(), hours(1));
}

TEST(Deadline, InThePastHasNegativeTimeLeft) {
  const auto deadline = Deadline::after(-hours(1));
  EXPECT_TRUE(deadline.has_passed());
  EXPECT_LE(deadline.remaining(), -hours(1));
}

TEST(Deadline, AfterNothingHasPassedAlready) { EXPECT_TRUE(Deadline::after(nanoseconds(0)).has_passed()); }

TEST(Deadline, ACopyIsTheSameMoment) {
  const auto deadline = Deadline::after(hours(1));
  const Deadline copy = deadline;  // NOLINT: the copy is what is tested
  EXPECT_EQ(copy.time(), deadline.time());
}

TEST(Deadline, LongerDurationsEndLater) {
  const auto soon = Deadline::after(hours(1));
  const auto late = Deadline::after(hours(2));
  EXPECT_LT(soon.time(), late.time());
}

}  // namespace
}  // namespace lockstep
