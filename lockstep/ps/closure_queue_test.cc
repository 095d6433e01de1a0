#include "lockstep/ps/closure_queue.h"

#include <atomic>
#include <set>
#include <string>

#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using testing::code_of;
using testing::on_threads;
using testing::ThrowsCode;

struct Job : Closure {
  explicit Job(std::string label = "") : label(std::move(label)) {}
  void mark_cancelled() noexcept override { ++cancelled; }
  void mark_aborted() noexcept override { ++aborted; }
  void mark_abandoned(const std::exception_ptr&) noexcept override { ++abandoned; }
  bool goes_alone() const noexcept override { return is_alone; }

  const std::string label;
  std::atomic<int> cancelled = 0;
  std::atomic<int> aborted = 0;
  std::atomic<int> abandoned = 0;
  bool is_alone = false;
};

std::shared_ptr<Job> job(const std::string& label = "") { return std::make_shared<Job>(label); }

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
Deadline now() { return Deadline::after(std::chrono::seconds(0)); }

std::exception_ptr failure(const std::string& text) {
  return std::make_exception_ptr(Error(ErrorCode::kInvalidArgument, text));
}

ClosurePtr take_one(ClosureQueue& queue) {
  const auto taken = queue.get({}, soon());
  return taken.closures.empty() ? nullptr : taken.closures.front();
}

TEST(ClosureQueue, RunsEveryClosureOnceInTotalThoughEachWorkerPutsItsFirstBack) {
  ClosureQueue queue;
  std::mutex mu;
  std::multiset<std::string> processed;
  const auto work = [&] {
    bool is_first = true;
    while (const auto closure = take_one(queue)) {
      if (std::exchange(is_first, false)) {
        queue.put_back({closure});
        continue;
      }
      {
        const std::lock_guard lock(mu);
        processed.insert(std::static_pointer_cast<Job>(closure)->label);
      }
      queue.mark_finished();
    }
  };
  std::jthread first(work), second(work);
  for (const auto* label : {"A", "B", "C", "D", "E"}) queue.put(job(label), soon());
  for (int i = 0; i < 4; ++i) queue.wait(soon());
  EXPECT_EQ(processed, (std::multiset<std::string>{"A", "B", "C", "D", "E"}));
  queue.stop();
}

TEST(ClosureQueue, IsNotWaitedForWhenEverythingHasFinished) {
  ClosureQueue queue;
  queue.wait(now());
  queue.put(job(), soon());
  take_one(queue);
  queue.mark_finished();
  queue.wait(now());
  EXPECT_TRUE(queue.done(now()));
}

TEST(ClosureQueue, ThrowsAFailureFromTheNextPutAndCancelsWhatIsQueued) {
  ClosureQueue queue;
  const auto queued = job(), refused = job();
  queue.put(job(), soon());
  queue.put(queued, soon());
  take_one(queue);
  queue.mark_failed(failure("no such thing"));
  EXPECT_THAT([&] { queue.put(refused, soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "no such thing"));
  EXPECT_TRUE(queue.done(now()));
  EXPECT_EQ(queued->cancelled, 1);
  EXPECT_EQ(refused->cancelled, 1);

  const auto next = job();
  queue.put(next, soon());
  EXPECT_EQ(take_one(queue), next);
  EXPECT_EQ(next->cancelled, 0);
}

TEST(ClosureQueue, ThrowsAFailureOnceFromWait) {
  ClosureQueue queue;
  const auto queued = job();
  queue.put(job(), soon());
  queue.put(queued, soon());
  take_one(queue);
  queue.mark_failed(failure("no such thing"));
  EXPECT_THAT([&] { queue.wait(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "no such thing"));
  EXPECT_EQ(queued->cancelled, 1);
  queue.wait(now());
}

TEST(ClosureQueue, ThrowsAFailureOnceFromDone) {
  ClosureQueue queue;
  queue.put(job(), soon());
  take_one(queue);
  EXPECT_FALSE(queue.done(now()));
  queue.mark_failed(failure("no such thing"));
  EXPECT_THAT([&] { queue.done(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "no such thing"));
  EXPECT_TRUE(queue.done(now()));
}

// Two in flight, one queued; one fails, and the other is interrupted when somebody asks.
void expect_waits_for_the_interrupted(const std::function<void(ClosureQueue&)>& ask) {
  ClosureQueue queue;
  const auto queued = job();
  queue.put(job(), soon());
  queue.put(job(), soon());
  queue.put(queued, soon());
  const auto taken = queue.get({.closures = 2}, soon());
  ASSERT_EQ(taken.closures.size(), 2U);
  queue.mark_failed(failure("Some error."));
  EXPECT_FALSE(taken.cancelled.stop_requested());

  std::atomic<bool> has_been_interrupted = false;
  const std::stop_callback on_cancel(taken.cancelled, [&] {
    has_been_interrupted = true;
    EXPECT_EQ(queued->cancelled, 1);  // nobody can get it any more
    queue.mark_failed(failure("Fake cancellation error."));
  });
  EXPECT_THAT([&] { ask(queue); }, ThrowsCode(ErrorCode::kInvalidArgument, "Some error."));
  EXPECT_TRUE(has_been_interrupted);
  EXPECT_TRUE(queue.done(now()));
  queue.put(job(), soon());
  EXPECT_FALSE(queue.get({}, now()).cancelled.stop_requested());
}

TEST(ClosureQueue, WaitsForInterruptedClosuresBeforeWaitThrows) {
  expect_waits_for_the_interrupted([](ClosureQueue& queue) { queue.wait(soon()); });
}

TEST(ClosureQueue, WaitsForInterruptedClosuresBeforePutThrows) {
  const auto put = job();
  expect_waits_for_the_interrupted([&](ClosureQueue& queue) { queue.put(put, soon()); });
  EXPECT_EQ(put->cancelled, 1);
}

TEST(ClosureQueue, KeepsTheFailureWhenWhatIsInFlightDoesNotEndInTime) {
  ClosureQueue queue;
  queue.put(job(), soon());
  queue.put(job(), soon());
  queue.get({.closures = 2}, soon());
  queue.mark_failed(failure("Some error."));
  EXPECT_EQ(code_of([&] { queue.wait(now()); }), ErrorCode::kDeadlineExceeded);
  queue.mark_finished();
  EXPECT_THAT([&] { queue.wait(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "Some error."));
}

TEST(ClosureQueue, CancelsWhatIsPutBackAfterAFailure) {
  ClosureQueue queue;
  const auto back = job();
  queue.put(job(), soon());
  queue.put(back, soon());
  queue.get({.closures = 2}, soon());
  queue.mark_failed(failure("Some error."));
  queue.put_back({back});
  EXPECT_EQ(back->cancelled, 1);
  EXPECT_EQ(code_of([&] { queue.wait(soon()); }), ErrorCode::kInvalidArgument);
}

TEST(ClosureQueue, GivesWhatWasPutBackFirst) {
  ClosureQueue queue(3);
  std::vector<std::shared_ptr<Job>> jobs = {job("0"), job("1"), job("2")};
  for (const auto& each : jobs) queue.put(each, soon());
  const auto taken = queue.get({.closures = 2}, soon());
  queue.put(job("3"), soon());
  queue.put(job("4"), soon());
  queue.put_back(taken.closures);  // has a place though it is full
  EXPECT_EQ(queue.counts().queued, 5U);
  const auto again = queue.get({.closures = 3}, soon());
  EXPECT_EQ(again.closures, (std::vector<ClosurePtr>{jobs[0], jobs[1], jobs[2]}));
}

TEST(ClosureQueue, MakesWhoPutsWaitWhileItIsFull) {
  ClosureQueue queue(2);
  queue.put(job(), soon());
  queue.put(job(), soon());
  const auto late = job();
  EXPECT_THAT([&] { queue.put(late, Deadline::after(std::chrono::milliseconds(20))); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "2 closures are queued"));
  EXPECT_EQ(late->cancelled, 1);
  std::jthread putting([&] { queue.put(job(), soon()); });
  take_one(queue);
  queue.mark_finished();
  putting.join();
  EXPECT_EQ(queue.counts().queued, 2U);
}

TEST(ClosureQueue, GivesNoMoreBytesThanAskedForButOneClosureAlways) {
  struct Large : Job {
    std::size_t bytes() const noexcept override { return 100; }
  };
  ClosureQueue queue;
  for (int i = 0; i < 5; ++i) queue.put(std::make_shared<Large>(), soon());
  EXPECT_EQ(queue.get({.closures = 64, .bytes = 1}, soon()).closures.size(), 1U);
  EXPECT_EQ(queue.get({.closures = 64, .bytes = 150}, soon()).closures.size(), 2U);
  EXPECT_EQ(queue.get({.closures = 64, .bytes = 1000}, soon()).closures.size(), 2U);
}

TEST(ClosureQueue, IsSafeWithManyThreads) {
  ClosureQueue queue;
  std::jthread putting([&] {
    for (int i = 0; i < 100; ++i) queue.put(job(), soon());
  });
  on_threads(10, [&](int) {
    for (int i = 0; i < 20; ++i) {
      const auto closure = take_one(queue);
      ASSERT_TRUE(closure);
      i % 2 == 0 ? queue.put_back({closure}) : queue.mark_finished();
    }
  });
  putting.join();
  queue.wait(soon());
  EXPECT_TRUE(queue.done(now()));
}

TEST(ClosureQueue, EndsEveryWaitWhenItIsStopped) {
  ClosureQueue queue(1);
  const auto queued = job(), refused = job(), back = job();
  queue.put(back, soon());
  const auto taken = queue.get({}, soon());
  queue.put(queued, soon());
  std::jthread putting([&] { EXPECT_EQ(code_of([&] { queue.put(refused, soon()); }), ErrorCode::kCancelled); });
  std::jthread waiting([&] { EXPECT_EQ(code_of([&] { queue.wait(soon()); }), ErrorCode::kCancelled); });
  queue.stop();
  EXPECT_EQ(queued->aborted, 1);
  EXPECT_TRUE(taken.cancelled.stop_requested());
  EXPECT_EQ(take_one(queue), nullptr);
  queue.put_back(taken.closures);
  EXPECT_EQ(back->aborted, 1);
}

TEST(ClosureQueue, CancelsEverythingQueuedWhenItIsAbandoned) {
  ClosureQueue queue;
  const auto queued = job();
  queue.put(queued, soon());
  queue.abandon(failure("nobody is there"));
  EXPECT_EQ(queued->abandoned, 1);
  EXPECT_THAT([&] { queue.wait(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "nobody is there"));
  EXPECT_TRUE(queue.done(now()));
}

TEST(ClosureQueue, GivesOneThatGoesAloneWithoutOthers) {
  ClosureQueue queue;
  for (int i = 0; i < 5; ++i) {
    const auto one = job();
    one->is_alone = i == 2;
    queue.put(one, soon());
  }
  std::vector<std::size_t> batches;
  while (!queue.done(now())) {
    batches.push_back(queue.get({.closures = 64}, soon()).closures.size());
    queue.mark_finished(batches.back());
  }
  EXPECT_EQ(batches, (std::vector<std::size_t>{2, 1, 2}));
}

TEST(ClosureQueue, RefusesNonsense) {
  EXPECT_EQ(code_of([] { ClosureQueue queue(0); }), ErrorCode::kInvalidArgument);
  ClosureQueue queue;
  EXPECT_EQ(code_of([&] { queue.mark_finished(); }), ErrorCode::kInternal);
}

}  // namespace
}  // namespace lockstep::ps
