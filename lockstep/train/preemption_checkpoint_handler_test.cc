#include "lockstep/train/preemption_checkpoint_handler.h"

#include <ATen/ATen.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/train/preemption.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/testing.h"
#include "tests/support/worker_threads.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using testing::cpus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogCapture;
using testing::on_workers;
using testing::ScratchFolder;
using testing::ThrowsCode;
using namespace std::chrono_literals;

// A training of one number, as a program that is started anew has it.
struct Program {
  explicit Program(const std::string& folder, const TerminationConfig& config = {}) : manager(make(), folder) {
    auto with = config;
    if (!with.exit) with.exit = [this] { ++exits; };
    handler.emplace(manager, with);
  }
  Checkpoint make() {
    Checkpoint checkpoint;
    checkpoint.track("sum", &sum);
    return checkpoint;
  }
  // After how many calls each checkpoint was saved; oldest first.
  std::vector<std::int64_t> saved() const {
    std::vector<std::int64_t> steps;
    for (const auto& path : manager.checkpoints()) steps.push_back(read_manifest(path).info.step);
    return steps;
  }

  std::int64_t sum = 0;
  int exits = 0;
  CheckpointManager manager;
  std::optional<PreemptionCheckpointHandler> handler;
};

TEST(PreemptionCheckpointHandler, CountsCallsThatEndWell) {
  const ScratchFolder folder;
  Program program(folder.path());
  EXPECT_EQ(program.handler->run([&] { return ++program.sum; }), 1);
  program.handler->run([&] { ++program.sum; });
  EXPECT_THAT([&] { program.handler->run([] { throw Error(ErrorCode::kOutOfRange, "no more"); }); },
              ThrowsCode(ErrorCode::kOutOfRange, "no more"));
  EXPECT_EQ(program.handler->run([&]() -> std::int64_t& { return program.sum; }), 2);
  EXPECT_EQ(program.handler->total_run_calls(), 3);
  EXPECT_THAT(program.saved(), ElementsAre());
}

TEST(PreemptionCheckpointHandler, SavesOnceAndEndsAfterTheCallInWhichItIsTold) {
  const ScratchFolder folder;
  {
    Program program(folder.path());
    for (int call = 0; call < 3; ++call) {
      program.handler->run([&] {
        ++program.sum;
        if (call == 2) std::raise(SIGTERM);
        if (call == 2) std::raise(SIGTERM);  // a scheduler and a launcher say the same
      });
    }
    EXPECT_EQ(program.exits, 0);
    EXPECT_THAT([&] { program.handler->run([&] { program.sum = -1; }); },
                ThrowsCode(ErrorCode::kCancelled, "after 3 calls", folder.path()));
    EXPECT_EQ(program.exits, 1);
    EXPECT_THAT(program.saved(), ElementsAre(3));
  }
  Program again(folder.path());
  EXPECT_EQ(again.sum, 3);
  EXPECT_EQ(again.handler->total_run_calls(), 3);
  again.handler->run([] {});  // the notice was the other program's
  EXPECT_EQ(again.exits, 0);
}

TEST(PreemptionNotice, ASecondOneLaterEndsTheProcess) {
  const auto hear_twice = [] {
    const auto notice = internal::listen_for_preemption();
    std::raise(SIGTERM);
    std::this_thread::sleep_for(internal::kSameNotice + 100ms);
    std::raise(SIGTERM);
    std::_Exit(0);
  };
  EXPECT_EXIT(hear_twice(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(PreemptionCheckpointHandler, WithAGracePeriodSavesTwiceAndGoesOnInBetween) {
  const ScratchFolder folder;
  Program program(folder.path(), {.grace_period = 800ms});
  program.handler->run([] { std::raise(SIGTERM); });
  const auto began = std::chrono::steady_clock::now();
  const auto call = [&] { program.handler->run([] { std::this_thread::sleep_for(5ms); }); };
  call();
  EXPECT_THAT(program.saved(), ElementsAre(1));
  EXPECT_THAT(
      [&] {
        for (;;) call();
      },
      ThrowsCode(ErrorCode::kCancelled));
  EXPECT_EQ(program.exits, 1);
  EXPECT_THAT(program.saved(), ElementsAre(1, program.handler->total_run_calls()));
  EXPECT_GT(program.handler->total_run_calls(), 5);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 800ms);  // it is off before the machine goes
}

// Two saves would take longer than there is time.
TEST(PreemptionCheckpointHandler, AGracePeriodOfAFewCallsIsNone) {
  const ScratchFolder folder;
  Program program(folder.path(), {.grace_period = 100ms});
  program.handler->run([] { std::this_thread::sleep_for(50ms); });
  std::raise(SIGTERM);
  EXPECT_THAT([&] { program.handler->run([] {}); }, ThrowsCode(ErrorCode::kCancelled));
  EXPECT_THAT(program.saved(), ElementsAre(1));
}

TEST(PreemptionCheckpointHandler, AWatcherIsAskedUntilItSaysSo) {
  const ScratchFolder folder;
  const LogCapture log;
  std::atomic<int> asked = 0;
  int saves = 0;
  Program program(folder.path(), {.watcher =
                                      [&] {
                                        if (++asked == 1) throw std::runtime_error("no metadata server");
                                        return true;
                                      },
                                  .save = [&] { ++saves; }});
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const auto loop = [&] {
    while (std::chrono::steady_clock::now() < deadline) program.handler->run([] { std::this_thread::sleep_for(1ms); });
  };
  EXPECT_THAT(loop, ThrowsCode(ErrorCode::kCancelled));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(saves, 1);
  EXPECT_THAT(program.saved(), ElementsAre());
  EXPECT_THAT(log.warnings(), Contains(HasSubstr("no metadata server")));
}

TEST(PreemptionCheckpointHandler, EndsAtOnceWhileItsWatcherWaits) {
  const ScratchFolder folder;
  Program program(folder.path(), {.watcher = [] { return false; }});
  program.handler->run([] {});
  EXPECT_LT(testing::time_of([&] { program.handler.reset(); }).count(), 0.9);
}

TEST(PreemptionCheckpointHandler, WhatCannotBeIsRefused) {
  const ScratchFolder folder;
  EXPECT_THAT([&] { PreemptionCheckpointHandler handler(Checkpoint(), ""); },
              ThrowsCode(ErrorCode::kInvalidArgument, "directory"));
  Program program(folder.path());
  EXPECT_THAT([&] { PreemptionCheckpointHandler second(program.manager); },
              ThrowsCode(ErrorCode::kInvalidArgument, "total_run_calls"));
  EXPECT_THAT([&] { Program negative(folder.path(), {.grace_period = -1ms}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "grace_period"));
  MirroredStrategy strategy(cpus(2));
  PreemptionCheckpointHandler handler(Checkpoint(strategy), folder / "own");
  EXPECT_THAT([&] { strategy.run([&] { handler.run([] {}); }); }, ThrowsCode(ErrorCode::kFailedPrecondition, "inside"));
}

// One of three workers is told, by its watcher; when it hears of it, the others are anywhere.
TEST(PreemptionCheckpointHandler, AllWorkersEndAfterTheSameCall) {
  const ScratchFolder folder;
  std::mutex mu;
  std::vector<std::int64_t> ends;
  on_workers({1, 1, 1}, [&](WorkerGroup& group) {
    ReplicaSetOptions options;
    options.workers = std::shared_ptr<WorkerGroup>(std::shared_ptr<void>(), &group);
    const auto replicas = std::make_shared<ReplicaSet>(nullptr, std::vector{find_logical_device("CPU:0")}, options);
    const bool is_last = group.layout().rank == 2;
    std::atomic<bool> is_told = false;
    PreemptionCheckpointHandler handler(
        Checkpoint(replicas), folder / "d",
        {.watcher = is_last ? std::function([&] { return is_told.exchange(true); }) : nullptr, .exit = [] {}});
    EXPECT_THAT(
        [&] {
          for (;;) handler.run([] { std::this_thread::yield(); });
        },
        ThrowsCode(ErrorCode::kCancelled));
    const std::lock_guard lock(mu);
    ends.push_back(handler.total_run_calls());
  });
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_GT(ends[0], 0);
  EXPECT_THAT(ends, ::testing::Each(ends[0]));
  EXPECT_EQ(read_manifest(folder / "d/ckpt-1").info.step, ends[0]);
}

}  // namespace
}  // namespace lockstep
