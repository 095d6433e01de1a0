#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// What outlives its strategy, and what a forked child can do.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;

TEST(Lifetime, VariablesAndModelsCanBeReadAfterTheirStrategy) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  std::optional<Variable> variable;
  std::optional<MirroredModule<torch::nn::LinearImpl>> model;
  std::optional<Optimizer> optimizer;
  {
    const auto scope = strategy->scope();
    variable.emplace(3.0);
    model.emplace(mirrored<torch::nn::Linear>(2, 1));
    optimizer.emplace(lockstep::optimizer<torch::optim::SGD>(*model, 0.1));
  }
  strategy.reset();
  EXPECT_EQ(variable->value().item<double>(), 3.0);
  variable->assign(4.0);
  EXPECT_EQ(variable->value().item<double>(), 4.0);
  EXPECT_EQ((*model)->weight.numel(), 2);
  EXPECT_EQ(optimizer->learning_rate(), 0.1);
}

TEST(Lifetime, ARunAfterTheStrategyIsAnError) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  const auto replicas = strategy->replicas().shared_from_this();
  strategy.reset();
  EXPECT_THAT([&] { replicas->run([](ReplicaContext&) {}); }, ThrowsCode(ErrorCode::kFailedPrecondition, "destroyed"));
}

TEST(Lifetime, AnObserverThatThrowsStopsTheRunAndNothingElse) {
  MirroredStrategy strategy(cpus(2));
  int calls = 0;
  auto token = strategy.replicas().observe_runs({.before = [&] {
    if (++calls == 1) throw Error(ErrorCode::kInvalidArgument, "not now");
  }});
  bool has_run = false;
  EXPECT_THAT([&] { strategy.run([&] { has_run = true; }); }, ThrowsCode(ErrorCode::kInvalidArgument, "not now"));
  EXPECT_FALSE(has_run);
  testing::on_threads(2, [&](int) { strategy.run([] {}); });
  EXPECT_EQ(calls, 3);
  token.reset();
  strategy.run([] {});
  EXPECT_EQ(calls, 3);
}

TEST(Lifetime, ObserversOfAFailedRunAreCalledBeforeTheNextRunBegins) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<int> running{0};
  std::atomic<bool> was_running{false};
  const auto token = strategy.replicas().observe_runs({.failed = [&] {
    for (int i = 0; i < 50; ++i) {
      if (running.load() > 0) was_running = true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }});
  testing::on_threads(2, [&](int thread) {
    for (int round = 0; round < 10; ++round) {
      if (thread == 0) EXPECT_THROW(strategy.run([] { throw std::runtime_error("no"); }), std::runtime_error);
      else
        strategy.run([&] {
          ++running;
          std::this_thread::sleep_for(std::chrono::microseconds(300));
          --running;
        });
    }
  });
  EXPECT_FALSE(was_running);
}

TEST(Lifetime, AScopeThatOutlivesItsStrategySaysSo) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  const testing::LogCapture log;
  const auto scope = strategy->scope();
  strategy.reset();
  EXPECT_THAT([] { get_strategy(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "destroyed"));
  EXPECT_THAT([] { replica_context(); }, ThrowsCode(ErrorCode::kFailedPrecondition));
}

TEST(Lifetime, AStrategyThatWasSetIsClearedWhenItGoes) {
  {
    MirroredStrategy strategy(cpus(2));
    experimental_set_strategy(&strategy);
    EXPECT_TRUE(has_strategy());
  }
  EXPECT_FALSE(has_strategy());
}

TEST(Lifetime, ASetStrategyCannotBeClearedInsideAScope) {
  MirroredStrategy strategy(cpus(2));
  experimental_set_strategy(&strategy);
  {
    const auto again = strategy.scope();
    EXPECT_THAT([] { experimental_set_strategy(nullptr); }, ThrowsCode(ErrorCode::kFailedPrecondition, "inside"));
    EXPECT_EQ(&get_strategy(), &strategy);
  }
  experimental_set_strategy(nullptr);
  EXPECT_FALSE(has_strategy());
}

TEST(Lifetime, AForkedChildIsToldThatTheReplicasAreNotThere) {
  std::optional<MirroredStrategy> strategy;
  strategy.emplace(cpus(2));
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // the parent waits for this process
    const auto code = testing::code_of([&] { strategy->run([] {}); });
    strategy.reset();  // must not wait for threads that do not exist
    _exit(code == ErrorCode::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  strategy->run([] {});
}

TEST(Lifetime, AReplicaThatDoesNotExistIsATypedError) {
  MirroredStrategy strategy(cpus(2));
  auto& replicas = strategy.replicas();
  EXPECT_THAT([&] { replicas.torch_device(9); }, ThrowsCode(ErrorCode::kInvalidArgument, "replica 9 of 2"));
  EXPECT_THAT([&] { replicas.generator_state(-1); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT([&] { replicas.set_generator_state(0, torch::zeros({3})); }, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(Lifetime, OptionsOutOfRangeAreTypedErrors) {
  EXPECT_THAT([] { MirroredStrategy(cpus(2), {.replicas_per_device = 1'000'000'000}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "at most"));
  EXPECT_THAT([] { MirroredStrategy(cpus(2), {.intra_op_threads = -1}); },
              ThrowsCode(ErrorCode::kInvalidArgument, "intra_op_threads"));
}

}  // namespace
}  // namespace lockstep
