#include "lockstep/observe/step_stats.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::ThrowsCode;

StepTimes times(double input, double compute, double sync, double checkpoint = 0) {
  return {{input, compute, sync, checkpoint, 0.001}};
}

TEST(StepStats, NamesWhoWasWaitedForHowOftenHowLongAndWhy) {
  StepStats stats(3);
  for (int step = 0; step < 100; ++step) {
    const bool is_slow = step % 100 < 81;
    // Worker 2 waits for its input; the others then wait for it.
    const double late = is_slow ? 0.034 : 0;
    const std::vector<StepTimes> all = {times(0.001, 0.1, 0.002 + late), times(0.001, 0.1, 0.002 + late),
                                        times(0.001 + late, 0.1, 0.002)};
    stats.add(all);
  }
  const auto stragglers = stats.stragglers();
  ASSERT_EQ(stragglers.size(), 1U);
  EXPECT_EQ(stragglers[0].worker, 2);
  EXPECT_EQ(stragglers[0].steps, 81);
  EXPECT_NEAR(stragglers[0].seconds, 0.034, 1e-9);
  EXPECT_EQ(stragglers[0].cause, StepPhase::kInput);
  EXPECT_EQ(stats.straggler_lines(), "worker 2 was waited for in 81 % of steps, 34 ms each: input\n");
  EXPECT_THAT(stats.summary(), HasSubstr("worker 0"));
  EXPECT_THAT(stats.summary(), HasSubstr("100 ms"));
  EXPECT_THAT(stats.summary(), HasSubstr("(100 steps)"));
  EXPECT_THAT(stats.summary(), HasSubstr("81 % of steps"));
}

TEST(StepStats, EqualWorkersAreNoStragglers) {
  StepStats stats(2);
  for (int step = 0; step < 10; ++step) {
    const double noise = step % 2 == 0 ? 0.0001 : -0.0001;
    const std::vector<StepTimes> all = {times(0, 0.1, 0.01 + noise), times(0, 0.1, 0.01 - noise)};
    stats.add(all);
  }
  EXPECT_TRUE(stats.stragglers().empty());
  EXPECT_EQ(stats.straggler_lines(), "");
}

TEST(StepStats, WhoeverCostsMostComesFirstAndRareOnesAreLeftOut) {
  StepStats stats(4);
  for (int step = 0; step < 100; ++step) {
    std::vector<StepTimes> all(4, times(0, 0.1, 0.05));
    const int late = step < 60 ? 1 : step < 95 ? 3 : 0;
    auto& one = all[static_cast<std::size_t>(late)];
    one[StepPhase::kSync] = late == 1 ? 0.04 : 0;
    one[late == 1 ? StepPhase::kCompute : StepPhase::kCheckpoint] += late == 1 ? 0.01 : 0.05;
    stats.add(all);
  }
  const auto stragglers = stats.stragglers();
  ASSERT_EQ(stragglers.size(), 2U);
  EXPECT_EQ(stragglers[0].worker, 3);
  EXPECT_EQ(stragglers[0].cause, StepPhase::kCheckpoint);
  EXPECT_EQ(stragglers[1].worker, 1);
  EXPECT_EQ(stragglers[1].cause, StepPhase::kCompute);
  EXPECT_EQ(stats.straggler_lines(),
            "worker 3 was waited for in 35 % of steps, 50 ms each: checkpoint\n"
            "worker 1 was waited for in 60 % of steps, 10 ms each: compute\n");
}

TEST(StepStats, WhatNothingExplainsIsTheCollectives) {
  StepStats stats(2);
  const std::vector<StepTimes> all = {times(0.001, 0.1, 0.02), times(0.0012, 0.1, 0.01)};
  for (int step = 0; step < 10; ++step) stats.add(all);
  EXPECT_EQ(stats.straggler_lines(),
            "worker 1 was waited for in 100 % of steps, 10 ms each: sync itself (a slow network, or a busy machine)\n");
}

TEST(StepStats, ScalarsAreSecondsOfTheEpoch) {
  StepStats stats(1);
  const std::vector<StepTimes> all = {times(0.25, 1, 0.5)};
  stats.add(all);
  stats.add(all);
  EXPECT_THAT(stats.scalars(), ::testing::Contains(std::pair<std::string, double>("step_breakdown/worker0/input", 0.5)));
  EXPECT_THAT(stats.scalars(), ::testing::Contains(std::pair<std::string, double>("step_breakdown/worker0/steps", 2)));
  stats.reset();
  EXPECT_EQ(stats.steps(), 0);
  EXPECT_EQ(stats.total(0).total(), 0);
  EXPECT_THAT([&] { stats.add(std::vector<StepTimes>(2)); }, ThrowsCode(ErrorCode::kInvalidArgument, "2 workers"));
  EXPECT_THAT([] { StepStats none(0); }, ThrowsCode(ErrorCode::kInvalidArgument, "at least 1"));
}

TEST(StepTimes, TravelAsBytes) {
  const auto sent = times(1, 2, 3, 4);
  EXPECT_EQ(StepTimes::from_bytes(sent.to_bytes()).seconds, sent.seconds);
  EXPECT_THAT([] { StepTimes::from_bytes("x"); }, ThrowsCode(ErrorCode::kDataLoss, "1 bytes"));
}

TEST(StepClock, EveryMomentBelongsToAPhase) {
  using std::chrono::milliseconds;
  const auto start = StepClock::Clock::now();
  StepClock clock;
  clock.enter(StepPhase::kInput, start);
  clock.end_step(start);
  clock.enter(StepPhase::kCompute, start + milliseconds(10));
  clock.enter(StepPhase::kSync, start + milliseconds(40));
  clock.enter(StepPhase::kInput, start + milliseconds(45));
  const auto first = clock.end_step(start + milliseconds(50));
  EXPECT_NEAR(first[StepPhase::kInput], 0.015, 1e-9);
  EXPECT_NEAR(first[StepPhase::kCompute], 0.030, 1e-9);
  EXPECT_NEAR(first[StepPhase::kSync], 0.005, 1e-9);
  EXPECT_NEAR(first.total(), 0.050, 1e-9);
  EXPECT_NEAR(clock.end_step(start + milliseconds(52))[StepPhase::kInput], 0.002, 1e-9);
}

TEST(StepClock, WaitsForOtherWorkersAreSyncWhateverThePhase) {
  StepClock clock;
  clock.enter(StepPhase::kCompute);
  const auto before = WaitClock::total();
  {
    const WaitClock::Scope waiting;
    const auto end = StepClock::Clock::now() + std::chrono::milliseconds(20);
    while (StepClock::Clock::now() < end) std::this_thread::yield();
  }
  const auto times = clock.end_step();
  EXPECT_GE(times[StepPhase::kSync], 0.02);
  EXPECT_NEAR(times[StepPhase::kSync], std::chrono::duration<double>(WaitClock::total() - before).count(), 1e-9);
  EXPECT_GE(times[StepPhase::kCompute], 0);
  EXPECT_LT(times[StepPhase::kCompute], times[StepPhase::kSync]);
}

}  // namespace
}  // namespace lockstep
