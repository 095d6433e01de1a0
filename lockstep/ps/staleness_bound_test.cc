#include "lockstep/ps/staleness_bound.h"

#include <random>
#include <vector>

#include "lockstep/ps/closure_queue.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

Deadline now() { return Deadline::after(std::chrono::seconds(0)); }

struct Job : Closure {
  void mark_cancelled() noexcept override {}
  void mark_aborted() noexcept override {}
  void mark_abandoned(const std::exception_ptr&) noexcept override {}
};

// Workers that take closures of random durations from a queue, in a time of their own.
class Workers {
 public:
  Workers(std::size_t count, std::optional<std::size_t> max_staleness, unsigned seed)
      : queue_(1'000, max_staleness), batches_(count), random_(seed) {}

  void run(int closures, const Appetite& appetite) {
    for (int i = 0; i < closures; ++i) queue_.put(std::make_shared<Job>(), now());
    while (!queue_.done(now())) {
      for (auto& batch : batches_)
        if (batch.taken.closures.empty()) take(batch, appetite);
      end_one();
    }
  }

  std::size_t most_stale() const { return most_stale_; }
  std::size_t refusals() const { return refusals_; }
  std::size_t most_at_once() const { return most_at_once_; }
  std::size_t longest_batch() const { return longest_batch_; }

 private:
  struct Batch {
    Taken taken = {};
    std::size_t ended_before = 0;
    double until = 0;
  };

  void take(Batch& batch, const Appetite& appetite) {
    if (queue_.counts().queued == 0) return;
    batch = {queue_.get(appetite, now()), ended_, time_ + std::exponential_distribution<double>(1)(random_)};
    if (batch.taken.closures.empty()) ++refusals_;
    longest_batch_ = std::max(longest_batch_, batch.taken.closures.size());
    most_at_once_ = std::max(most_at_once_, queue_.counts().in_flight);
  }

  void end_one() {
    Batch* first = nullptr;
    for (auto& batch : batches_)
      if (!batch.taken.closures.empty() && (first == nullptr || batch.until < first->until)) first = &batch;
    ASSERT_NE(first, nullptr) << "nothing is in flight, and nothing is handed out";
    time_ = first->until;
    const auto count = first->taken.closures.size();
    if (random_() % 20 == 0) {
      queue_.put_back(first->taken.closures, first->taken.began);
    } else {
      queue_.mark_finished(count, first->taken.began);
      most_stale_ = std::max(most_stale_, ended_ + count - 1 - first->ended_before);
      ended_ += count;
    }
    first->taken = {};
  }

  ClosureQueue queue_;
  std::vector<Batch> batches_;
  std::mt19937 random_;
  double time_ = 0;
  std::size_t ended_ = 0, most_stale_ = 0, refusals_ = 0, most_at_once_ = 0, longest_batch_ = 0;
};

TEST(StalenessBound, IsNeverPassedWhateverTheClosuresTake) {
  for (const std::size_t bound : {0, 1, 2, 3, 7, 20, 100})
    for (unsigned seed = 0; seed < 9; ++seed) {
      Workers workers(1 + seed, bound, seed);
      workers.run(100, {.closures = 1 + seed % 5});
      EXPECT_LE(workers.most_stale(), bound) << seed;
      EXPECT_LE(workers.most_at_once(), bound + 1) << seed;
    }
}

TEST(StalenessBound, IsReachedWhenThereAreWorkersForIt) {
  for (const std::size_t bound : {1, 2, 3, 7}) {
    Workers workers(bound + 1, bound, 3);
    workers.run(500, {});
    EXPECT_EQ(workers.most_stale(), bound);
    EXPECT_GT(workers.refusals(), 0U);
  }
}

TEST(StalenessBound, ThatIsLargeHoldsNobodyUp) {
  Workers bounded(4, 100'000, 5), free(4, std::nullopt, 5);
  bounded.run(1'000, {.closures = 64});
  free.run(1'000, {.closures = 64});
  EXPECT_EQ(bounded.refusals(), 0U);
  EXPECT_EQ(bounded.longest_batch(), 64U);
  EXPECT_EQ(bounded.most_stale(), free.most_stale());
}

TEST(StalenessBound, OfZeroHandsOutOneAtATime) {
  ClosureQueue queue(10, 0);
  for (int i = 0; i < 3; ++i) queue.put(std::make_shared<Job>(), now());
  const auto first = queue.get({.closures = 3}, now());
  EXPECT_EQ(first.closures.size(), 1U);
  EXPECT_TRUE(queue.get({}, now()).closures.empty());
  EXPECT_EQ(testing::code_of([&] { queue.mark_finished(1, first.began + 1); }), ErrorCode::kInternal);
  queue.put_back(first.closures, first.began);
  EXPECT_EQ(queue.get({}, now()).closures, first.closures);
}

TEST(StalenessBound, WakesWorkersThatItHeldUp) {
  ClosureQueue queue(10, 0);
  for (int i = 0; i < 2; ++i) queue.put(std::make_shared<Job>(), now());
  const auto first = queue.get({}, now());
  std::jthread other([&] {
    const auto second = queue.get({}, Deadline::after(std::chrono::seconds(20)));
    ASSERT_EQ(second.closures.size(), 1U);
    queue.mark_finished(1, second.began);
  });
  queue.mark_finished(1, first.began);
  queue.wait(Deadline::after(std::chrono::seconds(20)));
}

}  // namespace
}  // namespace lockstep::ps
