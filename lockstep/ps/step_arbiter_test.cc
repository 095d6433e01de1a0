#include "lockstep/ps/step_arbiter.h"

#include <gmock/gmock.h>

#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::code_of;
using ::testing::ElementsAre;

// One process of a worker.
struct Worker {
  Worker(StepArbiter& of, std::uint32_t index) : arbiter(of), from{index, index + 100, 0} {}

  StepState begin() { return arbiter.look({"m", from.worker}); }
  StepCommitReply commit(std::uint64_t step, std::uint32_t needed = 2) {
    ++from.number;
    return again(step, needed);
  }
  StepCommitReply again(std::uint64_t step, std::uint32_t needed = 2) { return arbiter.commit({"m", step, from, needed}); }

  StepArbiter& arbiter;
  Contribution from;
};

std::vector<std::uint32_t> workers_of(const StepState& state) {
  std::vector<std::uint32_t> all;
  for (const auto& one : state.counted) all.push_back(one.worker);
  return all;
}

TEST(StepArbiter, TakesTheFirstGradientsOfAStep) {
  StepArbiter arbiter;
  Worker a(arbiter, 0), b(arbiter, 1), c(arbiter, 2);
  for (auto* worker : {&a, &b, &c}) EXPECT_TRUE(worker->begin().may_begin);
  EXPECT_TRUE(c.commit(0).is_counted);
  const auto closing = a.commit(0);
  EXPECT_TRUE(closing.is_counted);
  EXPECT_TRUE(closing.state.is_closed);
  EXPECT_THAT(workers_of(closing.state), ElementsAre(0, 2));  // not as they came
  EXPECT_FALSE(b.commit(0).is_counted);
  EXPECT_FALSE(b.begin().may_begin);
  arbiter.open({"m", 0});
  arbiter.open({"m", 0});  // again
  const auto next = b.begin();
  EXPECT_TRUE(next.may_begin);
  EXPECT_EQ(next.step, 1U);
  EXPECT_FALSE(c.commit(0).is_counted);
}

TEST(StepArbiter, AnswersARepeatedCommitAsTheFirstTime) {
  StepArbiter arbiter;
  Worker a(arbiter, 0), b(arbiter, 1);
  EXPECT_TRUE(a.commit(0).is_counted);
  EXPECT_FALSE(a.again(0).state.is_closed);  // it is not counted twice
  EXPECT_TRUE(b.commit(0).state.is_closed);
  EXPECT_TRUE(b.again(0).state.is_closed);
  arbiter.open({"m", 0});
  EXPECT_TRUE(b.again(0).is_counted);
  EXPECT_EQ(b.again(0).state.step, 1U);
  b.commit(1);
  --b.from.number;
  EXPECT_EQ(code_of([&] { b.again(0); }), ErrorCode::kFailedPrecondition);
}

TEST(StepArbiter, AWorkerGivesASecondGradientOnlyWhenNobodyElseWorksOnTheStep) {
  StepArbiter arbiter({.patience = milliseconds(1), .straggler = seconds(60)});
  Worker a(arbiter, 0), b(arbiter, 1);
  EXPECT_TRUE(b.begin().may_begin);
  EXPECT_TRUE(a.commit(0, 3).is_counted);  // of a step that it did not ask for: how long others take is not known
  const auto waits = a.begin();
  EXPECT_FALSE(waits.may_begin);
  EXPECT_THAT(waits.working, ElementsAre(1));
  EXPECT_TRUE(b.commit(0, 3).is_counted);
  EXPECT_TRUE(a.begin().may_begin);
  EXPECT_FALSE(b.begin().may_begin);
  EXPECT_THAT(workers_of(a.commit(0, 3).state), ElementsAre(0, 0, 1));
}

TEST(StepArbiter, DoesNotWaitForWhoTakesManyTimesAsLongAsOthers) {
  StepArbiter arbiter({.patience = milliseconds(1), .straggler = seconds(60)});
  Worker a(arbiter, 0), b(arbiter, 1);
  a.begin();
  b.begin();  // and is lost
  EXPECT_TRUE(a.commit(0).is_counted);
  const auto deadline = Deadline::after(seconds(20));
  while (!a.begin().may_begin && !deadline.has_passed()) continue;
  EXPECT_TRUE(a.commit(0).is_counted);
}

TEST(StepArbiter, DoesNotWaitForAStragglerForEver) {
  StepArbiter arbiter({.patience = milliseconds(1), .straggler = milliseconds(5)});
  Worker a(arbiter, 0), b(arbiter, 1);
  b.begin();
  EXPECT_TRUE(a.commit(0).is_counted);
  EXPECT_TRUE(a.begin().may_begin);
}

TEST(StepArbiter, ThatWasStartedAgainIsToldItsPlace) {
  StepArbiter arbiter;
  Worker a(arbiter, 0), b(arbiter, 1);
  EXPECT_TRUE(a.commit(57).is_counted);
  EXPECT_EQ(b.begin().step, 57U);
  arbiter.open({"m", 60});
  EXPECT_EQ(b.begin().step, 61U);
  EXPECT_FALSE(b.commit(57).is_counted);
}

TEST(StepArbiter, RefusesWhatCannotBe) {
  StepArbiter arbiter;
  Worker a(arbiter, 0);
  EXPECT_EQ(code_of([&] { a.commit(0, 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { a.commit(0, StepArbiter::kMostNeeded + 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { arbiter.look({""}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { arbiter.look({std::string(2'000, 'x')}); }), ErrorCode::kInvalidArgument);
  arbiter.open({"m", ~0ULL});
  EXPECT_EQ(a.begin().step, 0U);
  for (std::size_t i = 1; i < StepArbiter::kMostModels; ++i) arbiter.look({str("model", i)});
  EXPECT_EQ(code_of([&] { arbiter.look({"one more"}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::ps
