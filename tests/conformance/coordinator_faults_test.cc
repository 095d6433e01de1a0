#include <ATen/ATen.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "lockstep/ps/connections.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/task_error.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/conformance/testing.h"
#include "tests/support/server_cluster.h"

// Workers and parameter servers that go away and come back.

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

struct Job {
  explicit Job(milliseconds call_timeout = milliseconds(20'000))
      : cluster(/*ps=*/2, /*workers=*/2, {.call_timeout = call_timeout}),
        strategy(cluster.chief(), nullptr, {.call_timeout = call_timeout}),
        coordinator(strategy) {
    const auto scope = strategy.scope();
    iterations.emplace(scalar(0));
  }
  double done() const { return iterations->value().item<double>(); }

  ServerCluster cluster;
  ParameterServerStrategy strategy;
  ClusterCoordinator coordinator;
  std::optional<Variable> iterations;  // on server 0
};

const auto kCount = remote_function("coordinator_faults.count", [](Variable v) { v.assign_add(1); });

std::atomic<int> g_running = 0;
std::atomic<bool> g_may_end = false;

template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto deadline = soon();
  while (!condition() && !deadline.has_passed()) std::this_thread::yield();
  return condition();
}

TEST(WorkerThatComesBack, IsUsedAgainAndNothingIsDoneTwice) {
  Job job;
  for (int i = 0; i < 2; ++i) job.coordinator.schedule(kCount, *job.iterations);
  job.coordinator.join(soon());
  job.cluster.stop("worker", 0);
  job.cluster.start("worker", 0);
  for (int i = 0; i < 2; ++i) job.coordinator.schedule(kCount, *job.iterations);
  job.coordinator.join(soon());
  EXPECT_EQ(job.done(), 4);
}

TEST(WorkerThatComesBack, LeavesItsClosureToBeRunAgain) {
  Job job;
  g_running = 0;
  g_may_end = false;
  for (int i = 0; i < 4; ++i)
    job.coordinator.schedule(
        [](WorkerContext& worker, Variable v) {
          v.assign_add(1);
          ++g_running;
          if (!comes_true([&] { return g_may_end || worker.is_cancelled(); }))
            throw Error(ErrorCode::kInternal, "nobody said that the closure may end");
          if (worker.is_cancelled()) throw Error(ErrorCode::kCancelled, "the worker ends");
        },
        *job.iterations);
  ASSERT_TRUE(comes_true([] { return g_running >= 2; }));
  job.cluster.stop("worker", 0);
  job.cluster.start("worker", 0);
  ASSERT_TRUE(comes_true([] { return g_running >= 3; }));
  g_may_end = true;
  job.coordinator.join(soon());
  EXPECT_GE(job.done(), 5) << "the interrupted closure counted, and was run again";
}

TEST(WorkerThatComesBack, MakesItsIteratorsThen) {
  Job job;
  const auto step = [](data::Iterator& it, Variable v) { v.assign_add(next_element(it)[0].to(at::kFloat)); };
  const auto dataset =
      job.coordinator.create_per_worker_dataset([] { return data::Dataset::from_tensor_slices(at::ones({100})); });
  job.coordinator.schedule(step, dataset.make_iterator(), *job.iterations);
  job.coordinator.join(soon());
  job.cluster.stop("worker", 0);
  job.cluster.stop("worker", 1);
  const auto iterator = dataset.make_iterator();
  for (int i = 0; i < 2; ++i) job.coordinator.schedule(step, iterator, *job.iterations);
  job.cluster.start("worker", 0);
  job.coordinator.join(soon());
  EXPECT_EQ(job.done(), 3);
  EXPECT_EQ(code_of([&] { iterator.local(); }), ErrorCode::kUnimplemented);
}

TEST(TaskThatIsGone, IsNamedByTheErrorOfACall) {
  Job job(milliseconds(300));
  job.cluster.stop("worker", 1);
  job.cluster.stop("ps", 0);
  const auto worker = job.strategy.connections()->workers.at(1);
  EXPECT_THAT([&] { worker->call(ps::TaskFacts::kMethod, {}, soon()); },
              ThrowsCode(ErrorCode::kUnavailable, "/job:worker/task:1"));
  try {
    job.iterations->value();
    ADD_FAILURE() << "a variable was read of a server that is gone";
  } catch (const TaskError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.task(), "/job:ps/task:0");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/job:ps/task:0"));
  }
}

TEST(TaskThatIsGone, IsAParameterServerWhileAWorkerComesBackToo) {
  Job job(milliseconds(300));
  job.cluster.stop("worker", 0);
  job.cluster.stop("ps", 0);
  for (int i = 0; i < 5; ++i) job.coordinator.schedule(kCount, *job.iterations);
  job.cluster.start("worker", 0);
  try {
    job.coordinator.join(soon());
    ADD_FAILURE() << "closures that write to a server that is gone have ended well";
  } catch (const PsUnavailable& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.task(), "/job:ps/task:0");
  }
  EXPECT_TRUE(job.coordinator.done());
}

// Two reports of its absence are forgiven.
TEST(TaskThatIsGone, IsAParameterServerThatComesBackInTime) {
  Job job;
  job.cluster.stop("ps", 1);
  std::optional<Variable> other;
  std::jthread later([&] { job.cluster.start("ps", 1); });
  {
    const auto scope = job.strategy.scope();
    other.emplace(scalar(0));  // on server 1, as soon as it is there
  }
  for (int i = 0; i < 5; ++i) job.coordinator.schedule(kCount, *other);
  job.coordinator.join(soon());
  EXPECT_EQ(other->value().item<float>(), 5);
}

TEST(ResultOfAClosure, OutlivesItsWorker) {
  Job job;
  const auto result = job.coordinator.schedule([](const Variable& v) { return std::pair((v + 1).detach(), (v - 1).detach()); },
                                               *job.iterations);
  job.coordinator.join(soon());
  job.cluster.stop("worker", 0);
  job.cluster.stop("worker", 1);
  const auto fetched = job.coordinator.fetch(result);
  EXPECT_EQ(fetched.first.item<float>(), 1);
  EXPECT_EQ(fetched.second.item<float>(), -1);
  EXPECT_EQ(result.get().first.item<float>(), 1);
}

TEST(VariableOfAServer, IsReadWhileAWorkerIsStartedAgain) {
  Job job;
  std::atomic<bool> is_over = false;
  std::atomic<int> reads = 0;
  std::jthread poll([&] {
    while (!is_over) {
      EXPECT_GE(job.done(), 0);
      ++reads;
    }
  });
  for (int round = 0; round < 3; ++round) {
    job.coordinator.schedule(kCount, *job.iterations);
    job.cluster.stop("worker", round % 2);
    job.cluster.start("worker", round % 2);
  }
  job.coordinator.join(soon());
  ASSERT_TRUE(comes_true([&] { return reads > 10; }));
  is_over = true;
  poll.join();
  EXPECT_GE(job.done(), 3);
}

// Threads of this process that a coordinator has.
int coordinator_threads() {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm") >> std::ws, name);
    if (name.starts_with("lockstep:lane") || name.starts_with("lockstep:signs")) ++count;
  }
  return count;
}

TEST(CoordinatorThatEnds, LeavesNoThreads) {
  const int before = coordinator_threads();
  {
    Job job;
    job.coordinator.schedule(kCount, *job.iterations);
    job.coordinator.join(soon());
    EXPECT_EQ(coordinator_threads(), before + 3);
  }
  EXPECT_TRUE(comes_true([&] { return coordinator_threads() == before; }));
}

}  // namespace
}  // namespace lockstep::testing
