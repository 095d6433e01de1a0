#include "lockstep/ps/failure_rules.h"

#include "lockstep/ps/task_error.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using testing::code_of;
using testing::LogCapture;
using testing::ThrowsCode;

closures::Outcome failed(ErrorCode code, const std::string& task = "") {
  closures::Outcome outcome;
  outcome.ending = closures::Ending::kFailed;
  outcome.code = code;
  outcome.text = "why";
  outcome.task = task;
  return outcome;
}

// The code that is thrown; nothing: it is run again.
std::optional<ErrorCode> judge(FailureRules& rules, ErrorCode code, const std::string& task = "") {
  const auto error = rules.judge(failed(code, task), "closure 'f'");
  return code_of([&] {
    if (error) std::rethrow_exception(error);
  });
}

Environment with(const std::string& name, const std::string& value) { return Environment::of({{name, value}}); }

TEST(FailureRules, ForgiveEachParameterServerTwoAbsences) {
  LogCapture log;
  FailureRules rules(Environment::of({}), 2);
  for (const auto code : {ErrorCode::kUnavailable, ErrorCode::kAborted})
    EXPECT_EQ(judge(rules, code, "/job:ps/task:0"), std::nullopt);
  EXPECT_EQ(judge(rules, ErrorCode::kUnavailable, "/job:ps/task:1"), std::nullopt);
  const auto fatal = rules.judge(failed(ErrorCode::kAborted, "/job:ps/task:0"), "closure 'f'");
  EXPECT_THROW(std::rethrow_exception(fatal), PsUnavailable);
  EXPECT_EQ(log.warnings().size(), 3U);
}

TEST(FailureRules, ForgiveAsManyAbsencesAsTheEnvironmentSays) {
  LogCapture log;
  FailureRules none(with("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "1"), 2);
  EXPECT_EQ(judge(none, ErrorCode::kUnavailable, "/job:ps/task:0"), ErrorCode::kUnavailable);
  FailureRules four(with("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "5"), 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(judge(four, ErrorCode::kUnavailable, "/job:ps/task:0"), std::nullopt);
  EXPECT_EQ(judge(four, ErrorCode::kUnavailable, "/job:ps/task:0"), ErrorCode::kUnavailable);
}

TEST(FailureRules, ThrowWhatIsTheFunctionsOwn) {
  FailureRules rules(Environment::of({}), 2);
  for (const auto code : {ErrorCode::kInvalidArgument, ErrorCode::kUnavailable, ErrorCode::kAborted, ErrorCode::kCancelled,
                          ErrorCode::kOutOfRange, ErrorCode::kDeadlineExceeded})
    EXPECT_EQ(judge(rules, code), code);
  EXPECT_EQ(judge(rules, ErrorCode::kDataLoss, "/job:ps/task:0"), ErrorCode::kDataLoss);
}

TEST(FailureRules, ForgiveTimeoutsInLargeJobs) {
  const auto forgiven = [](FailureRules rules) {
    int count = 0;
    while (rules.forgives_timeout()) ++count;
    return count;
  };
  EXPECT_EQ(forgiven({Environment::of({}), 9}), 0);
  EXPECT_EQ(forgiven({Environment::of({}), 49}), 3);
  EXPECT_EQ(forgiven({with("TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", "3"), 2}), 2);
  EXPECT_EQ(forgiven({with("TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", "-1"), 100}), 0);
}

TEST(FailureRules, RunAgainWhatAnotherTaskCancelled) {
  FailureRules rules(Environment::of({}), 2);
  EXPECT_EQ(judge(rules, ErrorCode::kCancelled, "/job:ps/task:0"), std::nullopt);
  EXPECT_EQ(judge(rules, ErrorCode::kCancelled, "/job:worker/task:0"), std::nullopt);
}

TEST(FailureRules, LetWorkersBeginOneAfterTheOther) {
  using std::chrono::seconds;
  FailureRules at_once(Environment::of({}), 2);
  EXPECT_EQ(at_once.start_delay(5), seconds(0));
  FailureRules later(with("TF_COORDINATOR_SCHEDULE_START_DELAY", "2"), 2);
  EXPECT_EQ(later.start_delay(3), seconds(6));
  FailureRules capped(
      Environment::of({{"TF_COORDINATOR_SCHEDULE_START_DELAY", "2"}, {"TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", "5"}}), 2);
  EXPECT_EQ(capped.start_delay(1), seconds(2));
  EXPECT_EQ(capped.start_delay(3), seconds(5));
  EXPECT_THAT([] { FailureRules wrong(with("TF_COORDINATOR_SCHEDULE_START_DELAY", "soon"), 2); },
              ThrowsCode(ErrorCode::kInvalidArgument, "soon"));
}

TEST(Attendance, SaysWhoIsMissing) {
  LogCapture log;
  Attendance workers({"a", "b"});
  EXPECT_EQ(workers.missing(), "waiting for a, b");
  EXPECT_GT(workers.deserted_for().count(), 0);
  workers.arrive("b");
  EXPECT_EQ(workers.missing(), "waiting for a");
  EXPECT_EQ(workers.deserted_for().count(), 0);
  workers.arrive("a");
  EXPECT_EQ(workers.missing(), "");
  workers.leave("a", "fire");
  EXPECT_EQ(log.warnings().size(), 1U);
  workers.leave("a", "fire");  // known
  workers.leave("b", "water");
  EXPECT_GT(workers.deserted_for().count(), 0);
  ASSERT_EQ(log.warnings().size(), 3U);
  EXPECT_THAT(log.warnings()[2], ::testing::HasSubstr("waiting for a, b"));
}

}  // namespace
}  // namespace lockstep::ps
