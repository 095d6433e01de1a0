#include "lockstep/ps/cluster_coordinator.h"

#include <ATen/ATen.h>

#include <atomic>
#include <latch>
#include <set>

#include "lockstep/ps/task_error.h"
#include "tests/support/closure_workers.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ClosureCluster;
using testing::code_of;
using testing::LogCapture;
using testing::ThrowsCode;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

// What closures of this process share with the test.
std::atomic<int> g_runs = 0;
std::atomic<int> g_made = 0;

// A closure that waits until the test lets it go, or nobody wants it any more.
struct Hold {
  std::atomic<int> begun = 0;
  std::atomic<bool> is_released = false;

  template <typename Condition>
  static void wait(const Condition& condition) {
    const auto deadline = soon();
    while (!condition() && !deadline.has_passed()) std::this_thread::yield();
    EXPECT_TRUE(condition());
  }
  void wait_for_begun(int count) {
    wait([&] { return begun >= count; });
  }
};
std::atomic<Hold*> g_hold = nullptr;
int hold(WorkerContext& worker) {
  ++g_hold.load()->begun;
  Hold::wait([&] { return g_hold.load()->is_released || worker.is_cancelled(); });
  if (worker.is_cancelled()) throw Error(ErrorCode::kCancelled, "interrupted");
  return worker.worker_index();
}
const auto kHold = remote_function("coordinator_test.hold", hold);
const auto kFail =
    remote_function("coordinator_test.fail", [](const std::string& text) { throw Error(ErrorCode::kInvalidArgument, text); });
const auto kTwice = remote_function("coordinator_test.twice", [](const at::Tensor& x) { return x * 2; });
const auto kCounter = remote_function("coordinator_test.counter", [](int start) {
  ++g_made;
  return std::make_unique<std::atomic<int>>(start);
});
const auto kNext = remote_function("coordinator_test.next", [](std::atomic<int>& counter) { return ++counter; });

struct Parts {
  at::Tensor sum;
  std::map<std::string, std::vector<int>> names;
};

TEST(ClusterCoordinator, ReturnsWhatFunctionsReturn) {
  ClosureCluster cluster(2);
  const auto x = at::arange(6).view({2, 3});
  auto twice = cluster->schedule(kTwice, x);
  auto text = cluster->schedule([](int n, const std::string& s) { return std::string(n, s[0]); }, 3, "xyz");
  auto parts = cluster->schedule(
      [](const std::vector<at::Tensor>& all, std::optional<double> scale) {
        return Parts{(all[0] + all[1]) * scale.value_or(1), {{"sizes", {1, 2}}}};
      },
      std::vector{x, x}, 0.5);
  auto nothing = cluster->schedule([] {});
  cluster->join(soon());
  EXPECT_TRUE(cluster->done());
  EXPECT_TRUE(at::equal(twice.get(), x * 2));
  EXPECT_EQ(text.fetch(), "xxx");
  EXPECT_TRUE(at::equal(parts.get().sum, x.to(at::kFloat)));
  EXPECT_EQ(parts.get().names.at("sizes"), (std::vector<int>{1, 2}));
  nothing.get();
  EXPECT_EQ(nothing.status(), RemoteValueStatus::kReady);
}

TEST(ClusterCoordinator, FetchesStructures) {
  ClosureCluster cluster(2);
  const auto plus = [](int a, int b) { return a + b; };
  const auto remote = cluster->schedule(plus, 3, 4);
  const auto fetched = cluster->fetch(std::tuple(remote, 7, std::vector{remote, remote}, std::map<std::string, int>{{"a", 1}},
                                                 std::pair(std::string("b"), remote)));
  EXPECT_EQ(fetched, std::tuple(7, 7, std::vector{7, 7}, std::map<std::string, int>{{"a", 1}}, std::pair(std::string("b"), 7)));
}

TEST(ClusterCoordinator, HasNothingToWaitForBeforeAnythingIsScheduled) {
  ClosureCluster cluster(2);
  EXPECT_TRUE(cluster->done());
  cluster->join();
  EXPECT_TRUE(cluster->done());
}

TEST(ClusterCoordinator, CopiesTensorsThatTheCallerMayChange) {
  ClosureCluster cluster(1);
  Hold held;
  g_hold = &held;
  auto holding = cluster->schedule(kHold);
  auto x = at::ones({4});
  auto twice = cluster->schedule(kTwice, x);
  x.fill_(100);
  held.is_released = true;
  EXPECT_TRUE(at::equal(twice.get(soon()), at::full({4}, 2.0F)));
  holding.get(soon());
}

TEST(ClusterCoordinator, ThrowsAFailureOnceFromJoinAndIsUsableAfterwards) {
  ClosureCluster cluster(2);
  auto earlier = cluster->schedule(kTwice, at::ones({1}));
  EXPECT_EQ(earlier.get(soon()).item<float>(), 2);
  auto failed = cluster->schedule(kFail, "some error");
  EXPECT_THAT([&] { cluster->join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "some error"));
  cluster->join(soon());
  EXPECT_EQ(code_of([&] { failed.get(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(earlier.get().item<float>(), 2);
  EXPECT_EQ(cluster->schedule(kTwice, at::full({1}, 3.0)).get(soon()).item<double>(), 6);
  cluster->join(soon());  // a value is there a moment before its closure counts as ended
  EXPECT_TRUE(cluster->done());
}

TEST(ClusterCoordinator, ThrowsAFailureFromScheduleAndDone) {
  ClosureCluster cluster(2);
  auto failed = cluster->schedule(kFail, "first");
  EXPECT_EQ(code_of([&] { failed.get(soon()); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { cluster->schedule(kFail, "not run"); }, ThrowsCode(ErrorCode::kInvalidArgument, "first"));
  cluster->join(soon());
  auto again = cluster->schedule(kFail, "second");
  EXPECT_EQ(code_of([&] { again.get(soon()); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { cluster->done(); }, ThrowsCode(ErrorCode::kInvalidArgument, "second"));
  EXPECT_TRUE(cluster->done());
}

TEST(ClusterCoordinator, EndsWhatRunsAndCancelsWhatIsQueuedBeforeItThrows) {
  ClosureCluster cluster(2);
  Hold held;
  g_hold = &held;
  auto running = cluster->schedule(kHold);
  held.wait_for_begun(1);
  auto failed = cluster->schedule(kFail, "some error");
  EXPECT_EQ(code_of([&] { failed.get(soon()); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { cluster->join(soon()); }, ThrowsCode(ErrorCode::kInvalidArgument, "some error"));
  EXPECT_EQ(running.status(), RemoteValueStatus::kReady);
  EXPECT_EQ(code_of([&] { running.get(); }), ErrorCode::kCancelled);
  EXPECT_TRUE(cluster->done());
}

TEST(ClusterCoordinator, WorksWithAQueueOfTwo) {
  ClosureCluster cluster(3, {.queue_size = 2});
  std::vector<RemoteValue<int>> values;
  for (int i = 0; i < 200; ++i) values.push_back(cluster->schedule([](int x) { return x + 1; }, i));
  cluster->join(soon());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)].get(), i + 1);
}

TEST(ClusterCoordinator, GoesOnWithOthersWhileOneWorkerIsSlow) {
  ClosureCluster cluster(2);
  Hold held;
  g_hold = &held;
  auto slow = cluster->schedule(kHold);
  held.wait_for_begun(1);
  std::vector<RemoteValue<int>> values;
  for (int i = 0; i < 50; ++i) values.push_back(cluster->schedule([](WorkerContext& worker) { return worker.worker_index(); }));
  std::set<int> by;
  for (const auto& value : values) by.insert(value.get(soon()));
  EXPECT_EQ(by.size(), 1U);
  held.is_released = true;
  EXPECT_FALSE(by.contains(slow.get(soon())));
}

TEST(ClusterCoordinator, MakesAValueOnEveryWorkerAndDropsItWhenNobodyHoldsIt) {
  ClosureCluster cluster(2);
  {
    const auto counter = cluster->create_per_worker_resource(kCounter, 100);
    EXPECT_EQ(code_of([&] { counter.local(); }), ErrorCode::kUnimplemented);
    std::multiset<int> counts;
    for (int i = 0; i < 6; ++i) counts.insert(cluster->schedule(kNext, counter).get(soon()));
    EXPECT_GE(*counts.begin(), 101);
    EXPECT_LE(*counts.rbegin(), 106);
    const auto inside = cluster->schedule(
        [](const std::vector<PerWorkerValues<std::atomic<int>>>& all) { return all[0].local().load(); }, std::vector{counter});
    EXPECT_GE(inside.get(soon()), 100);
  }
  Hold::wait(
      [&] { return cluster.worker(0).service().status().resources + cluster.worker(1).service().status().resources == 0; });
}

TEST(ClusterCoordinator, GivesEveryWorkerItsDataset) {
  ClosureCluster cluster(3);
  const auto dataset = cluster->create_per_worker_dataset([](const InputContext& input) {
    return data::Dataset::range(9).shard(input.num_input_pipelines, input.input_pipeline_id);
  });
  const auto iterator = dataset.make_iterator();
  Hold held;
  g_hold = &held;
  const auto first_of_each = [](WorkerContext& worker, data::Iterator& elements) {
    ++g_hold.load()->begun;
    g_hold.load()->wait_for_begun(3);  // so that every worker runs one
    return std::pair(worker.worker_index(), next_element(elements)[0].item<std::int64_t>());
  };
  std::vector<RemoteValue<std::pair<int, std::int64_t>>> firsts;
  for (int i = 0; i < 3; ++i) firsts.push_back(cluster->schedule(first_of_each, iterator));
  std::set<int> workers;
  for (const auto& first : firsts) {
    EXPECT_EQ(first.get(soon()).first, first.get().second);
    workers.insert(first.get().first);
  }
  EXPECT_EQ(workers.size(), 3U);
}

TEST(ClusterCoordinator, ThrowsTheEndOfADataset) {
  ClosureCluster cluster(2);
  const auto iterator = cluster->create_per_worker_dataset([] { return data::Dataset::range(1); }).make_iterator();
  // One worker may come to the end before the last is scheduled.
  EXPECT_EQ(code_of([&] {
              for (int i = 0; i < 3; ++i)
                cluster->schedule([](data::Iterator& elements) { return next_element(elements)[0]; }, iterator);
              cluster->join(soon());
            }),
            ErrorCode::kOutOfRange);
}

TEST(ClusterCoordinator, FailsAFunctionWhoseInputCouldNotBeMadeAndNoOther) {
  ClosureCluster cluster(2);
  const auto bad = cluster->create_per_worker_resource([]() -> int { throw Error(ErrorCode::kDataLoss, "damaged"); });
  const auto good = cluster->create_per_worker_resource(kCounter, 0);
  cluster->schedule(kNext, good).get(soon());
  cluster->join(soon());
  auto failed = cluster->schedule([](int& value) { return value; }, bad);
  EXPECT_THAT([&] { cluster->join(soon()); }, ThrowsCode(ErrorCode::kFailedPrecondition, "damaged", "/job:worker/task:"));
  EXPECT_EQ(code_of([&] { failed.get(); }), ErrorCode::kFailedPrecondition);
  EXPECT_GE(cluster->schedule(kNext, good).get(soon()), 1);
}

TEST(ClusterCoordinator, RunsTheClosuresOfALostWorkerElsewhere) {
  LogCapture log;
  ClosureCluster cluster(2);
  Hold held;
  g_hold = &held;
  std::vector<RemoteValue<int>> values;
  for (int i = 0; i < 2; ++i) values.push_back(cluster->schedule(kHold));
  held.wait_for_begun(2);  // one on each
  cluster.worker(0).kill();
  held.is_released = true;
  cluster->join(soon());
  for (const auto& value : values) EXPECT_EQ(value.get(), 1);
  ASSERT_EQ(log.warnings().size(), 1U);
  EXPECT_THAT(log.warnings()[0], ::testing::HasSubstr("/job:worker/task:0"));
}

TEST(ClusterCoordinator, UsesAWorkerAgainThatIsBackAndMakesItsValuesAnew) {
  LogCapture log;
  ClosureCluster cluster(1);
  const auto iterator = cluster->create_per_worker_dataset([] { return data::Dataset::range(100); }).make_iterator();
  const auto next = [](data::Iterator& elements) { return next_element(elements)[0].item<std::int64_t>(); };
  EXPECT_EQ(cluster->schedule(next, iterator).get(soon()), 0);
  EXPECT_EQ(cluster->schedule(next, iterator).get(soon()), 1);
  cluster.worker(0).kill();
  auto waiting = cluster->schedule(next, iterator);
  EXPECT_EQ(code_of([&] { cluster->join(Deadline::after(std::chrono::milliseconds(300))); }), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT([&] { cluster->join(Deadline::after(std::chrono::milliseconds(1))); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "waiting for /job:worker/task:0"));
  EXPECT_EQ(waiting.status(), RemoteValueStatus::kNotReady);
  cluster.worker(0).start();
  EXPECT_EQ(waiting.get(soon()), 0);  // from the beginning
  EXPECT_EQ(cluster->schedule(next, iterator).get(soon()), 1);
  EXPECT_THAT(log.warnings(), ::testing::Contains(::testing::HasSubstr("everything waits: waiting for /job:worker/task:0")));
}

TEST(ClusterCoordinator, NoticesAWorkerThatWasStartedAgainWhileItHadNothingToDo) {
  LogCapture log;
  ClosureCluster cluster(1);
  const auto counter = cluster->create_per_worker_resource(kCounter, 10);
  EXPECT_EQ(cluster->schedule(kNext, counter).get(soon()), 11);
  cluster.worker(0).kill();
  cluster.worker(0).start();
  EXPECT_EQ(cluster->schedule(kNext, counter).get(soon()), 11);
}

TEST(ClusterCoordinator, ThrowsWhenNobodyHasBeenThereForTooLong) {
  LogCapture log;
  ClosureCluster cluster(2, {.workers_timeout = std::chrono::milliseconds(300)});
  cluster.worker(0).kill();
  cluster.worker(1).kill();
  auto value = cluster->schedule([] { return 1; });
  EXPECT_THAT([&] { cluster->join(soon()); }, ThrowsCode(ErrorCode::kUnavailable, "/job:worker/task:0, /job:worker/task:1"));
  EXPECT_THAT([&] { value.get(); }, ThrowsCode(ErrorCode::kUnavailable, "/job:worker/task:0, /job:worker/task:1"));
}

TEST(ClusterCoordinator, NamesAClosureThatWorkersAreLostWith) {
  LogCapture log;
  ClosureCluster cluster(2, {.most_losses = 1});
  Hold held;
  g_hold = &held;
  auto value = cluster->schedule(kHold);
  held.wait_for_begun(1);
  for (int i = 0; i < 2; ++i) cluster.worker(i).kill();
  EXPECT_THAT([&] { cluster->join(soon()); }, ThrowsCode(ErrorCode::kUnavailable, kHold.name(), "1 times", "most_losses"));
  EXPECT_EQ(code_of([&] { value.get(soon()); }), ErrorCode::kUnavailable);
  EXPECT_THAT(log.warnings(), ::testing::Contains(::testing::HasSubstr("it had 1 closure: '" + std::string(kHold.name()))));
  held.is_released = true;
}

TEST(ClusterCoordinator, GivesUpAWorkerThatIsSilent) {
  LogCapture log;
  std::latch released(1);
  std::atomic<bool> has_closures = false;
  ps::ClosureService service({});
  auto methods = service.methods();
  // It says hello, and then nothing any more, as a stopped process.
  const auto silent = [&](ps::Incoming&, ps::Outgoing&) { released.wait(); };
  methods[ps::closures::kStatus] = {silent, ps::HandlerKind::kMayWait};
  methods[ps::closures::kRun] = {[&](ps::Incoming& request, ps::Outgoing& reply) {
                                   has_closures = true;
                                   silent(request, reply);
                                 },
                                 ps::HandlerKind::kMayWait};
  ps::RpcServer server(Address{"127.0.0.1", 0}, methods);
  testing::ClosureWorker healthy({.index = 1, .num_workers = 2, .name = "/job:worker/task:1"});
  const WorkerLink stopped{"/job:worker/task:0",
                           std::make_shared<ps::RpcChannel>("/job:worker/task:0", Address{"127.0.0.1", server.port()})};
  ClusterCoordinator coordinator({stopped, healthy.link()}, {.silence_timeout = std::chrono::milliseconds(400)});
  std::vector<RemoteValue<int>> values;
  while (!has_closures) values.push_back(coordinator.schedule([] { return ++g_runs; }));
  coordinator.join(soon());
  for (const auto& value : values) EXPECT_GT(value.get(), 0);
  released.count_down();
}

TEST(ClusterCoordinator, RunsAgainWhatFailedForAnAbsentParameterServerUntilItIsTooOften) {
  LogCapture log;
  g_runs = 0;
  ClosureCluster cluster(2);
  const auto fail = [](int times) {
    if (++g_runs <= times) throw TaskError(ErrorCode::kUnavailable, "/job:ps/task:1", "no answer");
    return g_runs.load();
  };
  EXPECT_EQ(cluster->schedule(fail, 2).get(soon()), 3);
  cluster->join(soon());
  cluster->schedule(fail, 100);
  try {
    cluster->join(soon());
    FAIL() << "no error";
  } catch (const PsUnavailable& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.task(), "/job:ps/task:1");
  }
  EXPECT_EQ(g_runs, 4);
}

TEST(ClusterCoordinator, AbortsWhatItHasWhenItEnds) {
  ClosureCluster cluster(1);
  Hold held;
  g_hold = &held;
  auto running = cluster->schedule(kHold);
  held.wait_for_begun(1);
  auto queued = cluster->schedule(kHold);
  cluster.end_coordinator();
  EXPECT_EQ(queued.status(), RemoteValueStatus::kAborted);
  EXPECT_EQ(code_of([&] { queued.get(); }), ErrorCode::kCancelled);
  EXPECT_EQ(code_of([&] { running.get(); }), ErrorCode::kCancelled);
}

TEST(ClusterCoordinator, MakesWayForANewOne) {
  LogCapture log;
  testing::ClosureWorker worker({});
  auto first = std::make_unique<ClusterCoordinator>(std::vector{worker.link()});
  const auto counter = first->create_per_worker_resource(kCounter, 0);
  EXPECT_EQ(first->schedule(kNext, counter).get(soon()), 1);
  first = nullptr;
  ClusterCoordinator second({worker.link()});
  const auto fresh = second.create_per_worker_resource(kCounter, 5);
  EXPECT_EQ(second.schedule(kNext, fresh).get(soon()), 6);
  EXPECT_EQ(worker.service().status().resources, 1U);
  // A value of the other coordinator is not taken for one of this.
  second.schedule(kNext, counter);
  EXPECT_EQ(code_of([&] { second.join(soon()); }), ErrorCode::kInvalidArgument);
}

TEST(ClusterCoordinator, SaysWhatIsNoWorker) {
  LogCapture log;
  ps::RpcServer other(Address{"127.0.0.1", 0}, {});
  ClusterCoordinator coordinator(
      {{"/job:worker/task:0", std::make_shared<ps::RpcChannel>("/job:worker/task:0", Address{"127.0.0.1", other.port()})}});
  auto value = coordinator.schedule([] {});
  EXPECT_THAT([&] { value.get(soon()); }, ThrowsCode(ErrorCode::kUnimplemented));
  EXPECT_THAT([&] { coordinator.join(soon()); }, ThrowsCode(ErrorCode::kUnimplemented, "/job:worker/task:0"));
}

int not_registered() { return 1; }

TEST(ClusterCoordinator, RefusesWhatItCannotUse) {
  EXPECT_EQ(code_of([] { ClusterCoordinator none({}); }), ErrorCode::kInvalidArgument);
  testing::ClosureWorker worker({});
  EXPECT_EQ(code_of([&] { ClusterCoordinator twice({worker.link(), worker.link()}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] {
              ClusterCoordinator bad({worker.link()},
                                     {.environment = Environment::of({{"TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", "two"}})});
            }),
            ErrorCode::kInvalidArgument);
  ClusterCoordinator coordinator({worker.link()});
  EXPECT_THAT([&] { coordinator.schedule(not_registered); }, ThrowsCode(ErrorCode::kInvalidArgument, "remote_function"));
  EXPECT_EQ(code_of([&] { coordinator.schedule(kTwice, at::ones({2, 2}).to_sparse()); }), ErrorCode::kInvalidArgument);
  static_assert(!ps::is_sendable<RemoteValue<at::Tensor>>() && !ps::is_sendable<std::vector<RemoteValue<int>>>());
  EXPECT_TRUE(coordinator.done());
}

}  // namespace
}  // namespace lockstep
