#include "lockstep/compat/v1/input_iterator.h"

#include <ATen/ATen.h>

#include <memory>
#include <stdexcept>

#include "lockstep/compat/v1/mirrored_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/data_testing.h"

// Iterators of the first version: passes that are begun by initialize(), and the functions that run on them.

namespace lockstep::compat::v1 {
namespace {

using data::Dataset;
using data::testing::Ints;
using data::testing::ints;
using lockstep::testing::code_of;
using lockstep::testing::cpus;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;
using Step = std::vector<Ints>;

Step parts(const PerReplica<data::Element>& batch) {
  Step step;
  for (const auto& part : batch) step.push_back(ints(part[0]));
  return step;
}

std::vector<Step> rest_of(InputIterator& iterator) {
  std::vector<Step> steps;
  EXPECT_THAT(
      [&] {
        for (;;) steps.push_back(parts(iterator.get_next()));
      },
      ThrowsCode(ErrorCode::kOutOfRange, "initialize()"));
  return steps;
}

InputIterator from_function(MirroredStrategy& strategy, const Dataset& dataset) {
  return strategy.make_input_fn_iterator([&](const InputContext&) { return dataset; });
}

Ints values_of(const PerReplica<at::Tensor>& results) {
  Ints values;
  for (const auto& result : results) values.push_back(result.item<std::int64_t>());
  return values;
}

TEST(FirstVersionIterator, OfADatasetDividesGlobalBatchesInEveryPass) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.make_dataset_iterator(Dataset::range(5).batch(2));
  for (int pass = 0; pass < 2; ++pass) {
    iterator.initialize();
    EXPECT_THAT(rest_of(iterator), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}, Step{{4}, {}}));
  }
}

TEST(FirstVersionIterator, OfAFunctionDealsElementsInEveryPass) {
  MirroredStrategy strategy(cpus(2));
  std::vector<std::string> contexts;
  auto iterator = strategy.make_input_fn_iterator([&](const InputContext& context) {
    contexts.push_back(str(context, " of ", context.num_replicas_in_sync));
    EXPECT_EQ(&get_strategy(), &strategy);
    return Dataset::range(10);
  });
  for (int pass = 0; pass < 2; ++pass) {
    iterator.initialize();
    EXPECT_THAT(rest_of(iterator), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}, Step{{4}, {5}}, Step{{6}, {7}}, Step{{8}, {9}}));
  }
  EXPECT_THAT(contexts, ElementsAre("tf.distribute.InputContext(input pipeline id 0, total: 1) of 2"));
}

TEST(FirstVersionIterator, OfAFunctionEndsBeforeAStepThatIsNotForAll) {
  MirroredStrategy strategy(cpus(2));
  auto partial = from_function(strategy, Dataset::range(5).batch(2));
  partial.initialize();
  EXPECT_THAT(rest_of(partial), ElementsAre(Step{{0, 1}, {2, 3}}));
  // A smaller batch is a batch.
  auto whole = from_function(strategy, Dataset::range(7).batch(2));
  whole.initialize();
  EXPECT_THAT(rest_of(whole), ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4, 5}, {6}}));
  EXPECT_EQ(code_of([&] { whole.get_next(); }), ErrorCode::kOutOfRange) << "and stays at its end";
  auto none = from_function(strategy, Dataset::range(1));
  none.initialize();
  EXPECT_THAT(rest_of(none), ElementsAre());
}

TEST(FirstVersionIterator, IsBegunAnewInTheMiddleOfAPass) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = from_function(strategy, Dataset::range(8));
  iterator.initialize();
  EXPECT_EQ(parts(iterator.get_next()), (Step{{0}, {1}}));
  EXPECT_EQ(parts(iterator.get_next()), (Step{{2}, {3}}));
  iterator.initialize();
  EXPECT_EQ(parts(iterator.get_next()), (Step{{0}, {1}}));
}

TEST(FirstVersionIterator, NeedsInitializeBeforeItsFirstStepAndAfterFinalize) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.make_dataset_iterator(Dataset::range(4).batch(2));
  EXPECT_THAT([&] { iterator.get_next(); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "make_dataset_iterator", "initialize()"));
  EXPECT_THAT([&] { strategy.experimental_run([](at::Tensor x) { return x; }, iterator); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "initialize()"));
  iterator.initialize();
  iterator.get_next();
  iterator.finalize();
  iterator.finalize();
  EXPECT_EQ(code_of([&] { iterator.get_next(); }), ErrorCode::kFailedPrecondition);
  iterator.initialize();
  EXPECT_EQ(parts(iterator.get_next()), (Step{{0}, {1}}));
}

TEST(FirstVersionIterator, IsBegunAnewAfterAFailure) {
  MirroredStrategy strategy(cpus(2));
  const auto fails = std::make_shared<bool>(true);
  auto iterator = strategy.make_dataset_iterator(Dataset::range(4).batch(2).map([fails](at::Tensor x) {
    if (*fails) throw std::runtime_error("no data");
    return x;
  }));
  iterator.initialize();
  for (int k = 0; k < 2; ++k) EXPECT_THROW(iterator.get_next(), std::runtime_error);
  *fails = false;
  iterator.initialize();
  EXPECT_THAT(rest_of(iterator), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}));
}

TEST(FirstVersionIterator, TakesOnePipelineForEachWorkerAlone) {
  MirroredStrategy strategy(cpus(2));
  int calls = 0;
  const auto input_fn = [&](const InputContext&) {
    ++calls;
    return Dataset::range(4);
  };
  EXPECT_THAT([&] { strategy.make_input_fn_iterator(input_fn, InputReplicationMode::kPerReplica); },
              ThrowsCode(ErrorCode::kInvalidArgument, "make_input_fn_iterator", "kPerReplica", "kPerWorker"));
  EXPECT_THAT([&] { strategy.make_input_fn_iterator(input_fn, static_cast<InputReplicationMode>(7)); },
              ThrowsCode(ErrorCode::kInvalidArgument, "kPerWorker"));
  EXPECT_THAT([&] { strategy.make_input_fn_iterator(nullptr); },
              ThrowsCode(ErrorCode::kInvalidArgument, "make_input_fn_iterator", "empty"));
  EXPECT_EQ(calls, 0);
}

TEST(FirstVersionIterator, OfElementsWithoutRowsIsRefused) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT([&] { strategy.make_dataset_iterator(Dataset::range(4)); }, ThrowsCode(ErrorCode::kInvalidArgument, "batch"));
}

TEST(FirstVersionIterator, IsMadeOutsideReplicasAndOtherStrategies) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  auto iterator = strategy.make_dataset_iterator(Dataset::range(4).batch(2));
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"make_dataset_iterator", [&] { strategy.make_dataset_iterator(Dataset::range(4).batch(2)); }},
      {"make_input_fn_iterator", [&] { from_function(strategy, Dataset::range(4)); }},
      {"experimental_make_numpy_dataset", [&] { strategy.experimental_make_numpy_dataset(at::ones({4})); }},
      {"initialize", [&] { iterator.initialize(); }},
      {"experimental_run", [&] { strategy.experimental_run([](at::Tensor) {}, iterator); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(code_of(call), std::nullopt) << name << " outside every scope";
    {
      const auto scope = strategy.scope();
      EXPECT_EQ(code_of(call), std::nullopt) << name << " in its own scope";
    }
    {
      const auto scope = other.scope();
      EXPECT_THAT(call, ThrowsCode(ErrorCode::kFailedPrecondition, name));
    }
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() != 0) return;
      EXPECT_THAT(call, ThrowsCode(ErrorCode::kFailedPrecondition, name));
    });
  }
}

TEST(FirstVersionIterator, EndsItsPassWhenItsStrategyIsGone) {
  auto strategy = std::make_unique<MirroredStrategy>(cpus(2));
  auto iterator = strategy->make_dataset_iterator(Dataset::range(4).batch(2));
  iterator.initialize();
  strategy.reset();
  EXPECT_THAT(rest_of(iterator), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}));
  EXPECT_THAT([&] { iterator.initialize(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "destroyed"));
}

TEST(ExperimentalRun, TakesAStepOfTheIteratorForEachCall) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.make_dataset_iterator(Dataset::range(4).batch(2));
  iterator.initialize();
  EXPECT_THAT(values_of(strategy.experimental_run([](at::Tensor x) { return x * 2; }, iterator)), ElementsAre(0, 2));
  EXPECT_THAT(values_of(strategy.experimental_run([](at::Tensor x) { return x + 1; }, iterator)), ElementsAre(3, 4));
  EXPECT_THAT([&] { strategy.experimental_run([](at::Tensor x) { return x; }, iterator); },
              ThrowsCode(ErrorCode::kOutOfRange, "make_dataset_iterator"));
}

TEST(ExperimentalRun, WithoutAnIteratorIsRun) {
  MirroredStrategy strategy(cpus(3));
  const auto ids = strategy.experimental_run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  EXPECT_THAT(ids.values(), ElementsAre(0, 1, 2));
}

TEST(ExperimentalRun, TakesTheIteratorsOfToday) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.experimental_distribute_dataset(Dataset::range(2).batch(2)).make_iterator();
  EXPECT_THAT(values_of(strategy.experimental_run([](at::Tensor x) { return x; }, iterator)), ElementsAre(0, 1));
}

TEST(ExperimentalRun, RefusesAnotherStrategysIteratorAndLosesNoStepOfIt) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  auto iterator = other.make_dataset_iterator(Dataset::range(4).batch(2));
  iterator.initialize();
  EXPECT_THAT([&] { strategy.experimental_run([](at::Tensor x) { return x; }, iterator); },
              ThrowsCode(ErrorCode::kFailedPrecondition, "experimental_run", "another strategy", "make_dataset_iterator"));
  EXPECT_EQ(parts(iterator.get_next()), (Step{{0}, {1}}));
}

TEST(ExperimentalRun, AFailureOfTheFunctionLeavesTheIteratorAtItsNextStep) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.make_dataset_iterator(Dataset::range(4).batch(2));
  iterator.initialize();
  EXPECT_THROW(strategy.experimental_run([](at::Tensor) -> at::Tensor { throw std::runtime_error("bad step"); }, iterator),
               std::runtime_error);
  EXPECT_EQ(parts(iterator.get_next()), (Step{{2}, {3}}));
}

}  // namespace
}  // namespace lockstep::compat::v1
