#include "lockstep/collective/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A cluster of two workers as the coordinator would describe it.
class Scene {
 public:
  Scene() {
    for (int index = 0; index < 2; ++index) {
      Member member;
      member.introduction.task = {"worker", index};
      member.introduction.host = "somewhere";
      member.introduction.pid = 100 + index;
      member.activity = {4, "code after all_reduce #12", 12};
      member.last_heard = std::chrono::steady_clock::now();
      view.members.push_back(member);
    }
    set_log_sink([this](LogLevel, const std::string& line) { note(warnings_, line); });
  }
  ~Scene() { set_log_sink(nullptr); }

  Watchdog::Setup setup() {
    Watchdog::Setup result;
    result.me = "worker 0";
    result.workers = {"worker 0", "worker 1"};
    result.stall_warning = milliseconds(150);
    result.timeout = std::chrono::minutes(1);
    result.look = [this] {
      if (is_silent) throw Error(ErrorCode::kDeadlineExceeded, "no answer");
      return view;
    };
    result.tell = [](const Activity&) {};
    result.fail = [this](const Error& error) { note(failures_, error.what()); };
    return result;
  }

  std::string warning() { return wait_for(warnings_); }
  std::string failure() { return wait_for(failures_); }
  bool has_warned() {
    const std::lock_guard lock(mu_);
    return !warnings_.empty();
  }
  bool has_failed() {
    const std::lock_guard lock(mu_);
    return !failures_.empty();
  }

  ClusterView view;
  std::atomic<bool> is_silent{false};

 private:
  void note(std::vector<std::string>& list, const std::string& text) {
    const std::lock_guard lock(mu_);
    list.push_back(text);
    changed_.notify_all();
  }
  std::string wait_for(std::vector<std::string>& list) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !list.empty(); });
    return list.empty() ? "nothing" : list[0];
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> warnings_, failures_;
};

// Thirteen calls, of which the last is under way.
class Waiting {
 public:
  Waiting() {
    calls.begin_step();
    for (int call = 0; call < 12; ++call) Calls::Scope(calls, "all_reduce");
    scope.emplace(calls, "all_reduce of a tensor");
  }
  Calls calls;
  std::optional<Calls::Scope> scope;
};

TEST(Watchdog, SaysWhoIsLateAtWhatAndWhatItDoes) {
  Scene scene;
  Waiting waiting;
  const Watchdog dog(waiting.calls, scene.setup());
  EXPECT_THAT(scene.warning(), AllOf(HasSubstr("worker 0 has waited"), HasSubstr("'all_reduce of a tensor' #13 of step 1"),
                                     HasSubstr("arrived: worker 0; missing: worker 1 on host 'somewhere' (process 101)"),
                                     HasSubstr("code after all_reduce #12")));
}

TEST(Watchdog, FailsTheJobAtTheTimeout) {
  Scene scene;
  Waiting waiting;
  auto setup = scene.setup();
  setup.timeout = milliseconds(300);
  const Watchdog dog(waiting.calls, std::move(setup));
  EXPECT_THAT(scene.failure(), AllOf(HasSubstr("kDeadlineExceeded"), HasSubstr("missing: worker 1")));
}

TEST(Watchdog, ACallMayHaveATimeoutOfItsOwn) {
  Scene scene;
  Waiting waiting;
  waiting.scope.reset();
  waiting.scope.emplace(waiting.calls, "all_reduce of a tensor", /*is_numbered=*/true, milliseconds(300));
  const Watchdog dog(waiting.calls, scene.setup());
  EXPECT_THAT(scene.failure(), HasSubstr("kDeadlineExceeded"));
}

TEST(Watchdog, WhoeverIsFurthestBehindIsNamedFirst) {
  Scene scene;
  scene.view.members.push_back(scene.view.members[1]);
  scene.view.members[2].introduction.task.index = 2;
  scene.view.members[2].activity.calls = 7;
  auto setup = scene.setup();
  setup.workers.push_back("worker 2");
  Waiting waiting;
  const Watchdog dog(waiting.calls, std::move(setup));
  EXPECT_THAT(scene.warning(), ::testing::ContainsRegex("arrived: worker 0; missing: worker 2 on .*; worker 1 on "));
}

TEST(Watchdog, AWorkerThatHasEndedWillNotCome) {
  Scene scene;
  scene.view.members[1].has_left = true;
  Waiting waiting;
  const Watchdog dog(waiting.calls, scene.setup());
  EXPECT_THAT(scene.failure(), AllOf(HasSubstr("kUnavailable"), HasSubstr("worker 1 has ended and will not come")));
}

TEST(Watchdog, AMachineThatDoesNotAnswerIsAskedAfterAWhileAndEndsTheJob) {
  Scene scene;
  Waiting waiting;
  auto setup = scene.setup();
  std::atomic<int> wanted{0};
  setup.reach = [&](bool is_wanted) { return is_wanted && ++wanted > 3 ? std::string("worker 1 (10.0.0.2:7)") : ""; };
  const Watchdog dog(waiting.calls, std::move(setup));
  EXPECT_THAT(scene.failure(), AllOf(HasSubstr("kUnavailable"), HasSubstr("worker 1 (10.0.0.2:7) cannot be reached")));
}

// What it has sent may still be on its way.
TEST(Watchdog, AWorkerThatMadeItsPartOfTheCallMayEnd) {
  Scene scene;
  scene.view.members[1].has_left = true;
  scene.view.members[1].activity.calls = 13;
  Waiting waiting;
  {
    const Watchdog dog(waiting.calls, scene.setup());
    EXPECT_THAT(scene.warning(), HasSubstr("arrived: worker 0, worker 1"));
    EXPECT_FALSE(scene.has_failed());
  }
  scene.view.members[1].last_heard -= std::chrono::minutes(1);
  const Watchdog dog(waiting.calls, scene.setup());
  EXPECT_THAT(scene.failure(), HasSubstr("worker 1 has ended and will not come"));
}

TEST(Watchdog, ACoordinatorThatDoesNotAnswerIsTheOneThatIsLate) {
  Scene scene;
  scene.is_silent = true;
  Waiting waiting;
  auto setup = scene.setup();
  setup.me = "worker 1";
  const Watchdog dog(waiting.calls, std::move(setup));
  EXPECT_THAT(scene.warning(), HasSubstr("worker 0, the coordinator, does not answer"));
}

TEST(Watchdog, IsQuietWhileNothingWaits) {
  Scene scene;
  Waiting waiting;
  waiting.scope.reset();
  {
    const Watchdog dog(waiting.calls, scene.setup());
    std::this_thread::sleep_for(milliseconds(500));
  }
  EXPECT_FALSE(scene.has_warned());
}

TEST(Calls, KeepTheLastThousandAndThoseUnderWay) {
  Calls calls;
  for (int call = 0; call < 1500; ++call) Calls::Scope(calls, "call " + std::to_string(call));
  Calls::Scope open(calls, "open");
  const auto last = calls.last();
  ASSERT_EQ(last.size(), Calls::kKept + 1);
  EXPECT_EQ(last[0].text, "call 500");
  EXPECT_EQ(last.back().text, "open");
  EXPECT_FALSE(last.back().seconds.has_value());
  EXPECT_EQ(calls.count(), 1501);
  EXPECT_THAT(calls.flight_record("worker 0"), HasSubstr("\"call\":\"open\""));
}

TEST(Calls, StepsCountTheRunsThatHaveCollectives) {
  Calls calls;
  Calls::Scope(calls, "the start");
  EXPECT_EQ(calls.step(), 0);
  calls.begin_step();
  calls.begin_step();  // a run without one does not count
  Calls::Scope(calls, "first");
  Calls::Scope(calls, "second");
  EXPECT_EQ(calls.step(), 1);
  EXPECT_EQ(calls.describe(), "code after second #3");
}

}  // namespace
}  // namespace lockstep
