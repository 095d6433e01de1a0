#include <functional>
#include <utility>

#include "tests/conformance/testing.h"

// What a thread sees of strategies: outside every scope, inside scope(), inside run(), and where two strategies meet.

namespace lockstep::testing {
namespace {

struct Place {
  bool has_replica_context = get_replica_context() != nullptr;
  bool is_cross_replica = in_cross_replica_context();
  bool has_strategy = lockstep::has_strategy();
  Strategy* strategy = &get_strategy();
};

void expect_default_place() {
  const Place here;
  EXPECT_TRUE(here.has_replica_context);
  EXPECT_FALSE(here.is_cross_replica);
  EXPECT_FALSE(here.has_strategy);
  EXPECT_EQ(here.strategy, &default_strategy());
}

TEST(Contexts, InsideRunThereIsAReplicaContextOfTheStrategy) {
  MirroredStrategy strategy(cpus(2));
  const auto places = strategy.run([](ReplicaContext& context) {
    EXPECT_EQ(get_replica_context(), &context);
    EXPECT_EQ(&replica_context(), &context);
    EXPECT_EQ(&context.strategy(), &get_strategy());
    return Place();
  });
  ASSERT_EQ(places.size(), 2u);
  for (const Place& place : places) {
    EXPECT_TRUE(place.has_replica_context);
    EXPECT_FALSE(place.is_cross_replica);
    EXPECT_TRUE(place.has_strategy);
    EXPECT_EQ(place.strategy, &strategy);
  }
  expect_default_place();
}

TEST(Contexts, InsideScopeThereIsNoReplicaContext) {
  MirroredStrategy strategy(cpus(2));
  {
    const auto scope = strategy.scope();
    const Place here;
    EXPECT_FALSE(here.has_replica_context);
    EXPECT_TRUE(here.is_cross_replica);
    EXPECT_TRUE(here.has_strategy);
    EXPECT_EQ(here.strategy, &strategy);
    EXPECT_EQ(code_of([] { replica_context(); }), ErrorCode::kFailedPrecondition);
  }
  expect_default_place();
}

TEST(Contexts, SetStrategyReplacesTheCurrentOneUntilItIsCleared) {
  MirroredStrategy first(cpus(2));
  MirroredStrategy second(cpus(2));
  experimental_set_strategy(&first);
  EXPECT_EQ(&get_strategy(), &first);
  EXPECT_TRUE(in_cross_replica_context());
  experimental_set_strategy(&second);
  EXPECT_EQ(&get_strategy(), &second);
  experimental_set_strategy(nullptr);
  expect_default_place();
}

TEST(Contexts, SetStrategyIsRefusedInsideScope) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  const auto scope = strategy.scope();
  for (Strategy* wanted : {static_cast<Strategy*>(&other), static_cast<Strategy*>(&strategy), static_cast<Strategy*>(nullptr)})
    EXPECT_EQ(code_of([&] { experimental_set_strategy(wanted); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(&get_strategy(), &strategy);
}

TEST(Contexts, ScopesNestForOneStrategyAndNotForTwo) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  const auto scope = strategy.scope();
  {
    const auto again = strategy.scope();
    EXPECT_EQ(&get_strategy(), &strategy);
  }
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_EQ(code_of([&] { const auto mixed = other.scope(); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(&get_strategy(), &strategy);
}

TEST(Contexts, CrossReplicaMethodsAreRefusedUnderAnotherStrategy) {
  MirroredStrategy strategy(cpus(2));
  MirroredStrategy other(cpus(2));
  auto& extended = strategy.extended();
  const auto value = scalars({1, 3});
  const auto variable = [&] {
    const auto scope = strategy.scope();
    return Variable(1.0);
  }();
  const auto distributed = strategy.experimental_distribute_dataset(data::Dataset::range(4).batch(2));

  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"run", [&] { strategy.run([] {}); }},
      {"reduce", [&] { strategy.reduce("sum", value); }},
      {"reduce_to", [&] { extended.reduce_to("mean", value, "CPU:0"); }},
      {"batch_reduce_to",
       [&] {
         extended.batch_reduce_to("mean", {{value, "CPU:0"}});
       }},
      {"broadcast_to", [&] { extended.broadcast_to(scalar(1)); }},
      {"update", [&] { extended.update(variable, [](at::Tensor) {}); }},
      {"update_non_slot", [&] { extended.update_non_slot(extended.worker_devices(), [] {}); }},
      {"a variable's value", [&] { variable.value(); }},
      {"a distributed dataset's element", [&] { distributed.make_iterator().get_next(); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(code_of(call), std::nullopt) << name << " outside every scope";
    {
      const auto scope = strategy.scope();
      EXPECT_EQ(code_of(call), std::nullopt) << name << " in its own scope";
    }
    const auto scope = other.scope();
    EXPECT_EQ(code_of(call), ErrorCode::kFailedPrecondition) << name << " in another strategy's scope";
  }
}

TEST(Contexts, StrategiesOfOneMachineHaveNoClusterResolver) {
  MirroredStrategy mirrored(cpus(2));
  OneDeviceStrategy one_device("CPU:0");
  EXPECT_EQ(mirrored.cluster_resolver(), nullptr);
  EXPECT_EQ(one_device.cluster_resolver(), nullptr);
  EXPECT_EQ(default_strategy().cluster_resolver(), nullptr);
  const auto scope = mirrored.scope();
  EXPECT_EQ(get_strategy().cluster_resolver(), nullptr);
}

TEST(DefaultStrategy, ItsScopeChangesNothing) {
  expect_default_place();
  const auto scope = default_strategy().scope();
  expect_default_place();
  const auto again = default_strategy().scope();
  expect_default_place();
}

TEST(DefaultStrategy, AVariableOfAnotherStrategyIsRefusedInsideItsScope) {
  MirroredStrategy strategy(cpus(2));
  const auto outer = default_strategy().scope();
  const auto inner = strategy.scope();
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_EQ(code_of([] { Variable variable(1.0); }), ErrorCode::kFailedPrecondition);
}

TEST(DefaultStrategy, DistributesADatasetAsItIs) {
  const auto dataset = data::Dataset::range(10).batch(2);
  const auto first = default_strategy().experimental_distribute_dataset(dataset).make_iterator().get_next();
  EXPECT_EQ(parts(first), (Step{{0, 1}}));
}

TEST(DefaultStrategy, DistributesWhatADatasetFunctionGives) {
  std::vector<std::string> contexts;
  const auto distributed = default_strategy().distribute_datasets_from_function([&](const InputContext& context) {
    contexts.push_back(str(context));
    EXPECT_EQ(context.num_replicas_in_sync, 1);
    return data::Dataset::range(10).batch(2);
  });
  EXPECT_EQ(parts(distributed.make_iterator().get_next()), (Step{{0, 1}}));
  EXPECT_THAT(contexts, ElementsAre("tf.distribute.InputContext(input pipeline id 0, total: 1)"));
}

}  // namespace
}  // namespace lockstep::testing
