#include <functional>

#include "tests/conformance/testing.h"

// Variables synchronised on read: every replica writes its own component, a read across replicas aggregates.

namespace lockstep::testing {
namespace {

class OnReadVariable : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  static Variable make(double initial, Aggregation aggregation) {
    return Variable(initial, {.synchronization = Sync::kOnRead, .aggregation = aggregation});
  }
  // Every replica has written its id.
  Variable with_ids(Aggregation aggregation) {
    auto variable = make(1.0, aggregation);
    strategy.run([&](ReplicaContext& context) { variable.assign(scalar(context.replica_id_in_sync_group())); });
    return variable;
  }
};

TEST_F(OnReadVariable, ASumIsReadAcrossReplicasAndDividedByAssign) {
  auto variable = make(1.0, Aggregation::kSum);
  EXPECT_THAT(floats(variable.read_value()), ElementsAre(2));
  variable.assign(6.0);
  EXPECT_THAT(floats(variable.read_value()), ElementsAre(6));
  EXPECT_THAT(components(variable), ElementsAre(3, 3));
}

const std::vector<std::function<void(Variable&)>> kWritesOfOne = {
    [](Variable& variable) { variable.assign(scalar(1)); },
    [](Variable& variable) { variable.assign_add(scalar(1)); },
    [](Variable& variable) { variable.assign_sub(scalar(-1)); },
};

TEST_F(OnReadVariable, AReplicaWritesItsOwnComponentWhateverTheAggregation) {
  for (const auto aggregation : kAllAggregations) {
    for (const auto& write : kWritesOfOne) {
      auto variable = make(0.0, aggregation);
      strategy.run([&] { write(variable); });
      EXPECT_THAT(components(variable), ElementsAre(1, 1)) << aggregation;
    }
  }
}

TEST_F(OnReadVariable, AWriteAcrossReplicasReachesEveryComponent) {
  for (const auto aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    for (const auto& write : kWritesOfOne) {
      auto variable = make(0.0, aggregation);
      write(variable);
      EXPECT_THAT(components(variable), ElementsAre(1, 1)) << aggregation;
    }
  }
}

TEST_F(OnReadVariable, AddingToASumAcrossReplicasIsRefused) {
  auto variable = make(0.0, Aggregation::kSum);
  EXPECT_EQ(code_of([&] { variable.assign_add(1.0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { variable.assign_sub(1.0); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(components(variable), ElementsAre(0, 0));
}

TEST_F(OnReadVariable, ReadAcrossReplicasAsASum) {
  EXPECT_THAT(floats(with_ids(Aggregation::kSum).read_value()), ElementsAre(1));
}

TEST_F(OnReadVariable, ReadAcrossReplicasAsAMean) {
  EXPECT_THAT(floats(with_ids(Aggregation::kMean).read_value()), ElementsAre(.5));
}

TEST_F(OnReadVariable, ReadAcrossReplicasAsTheFirst) {
  EXPECT_THAT(floats(with_ids(Aggregation::kOnlyFirstReplica).read_value()), ElementsAre(0));
}

TEST_F(OnReadVariable, WithoutAnAggregationHasNoValueAcrossReplicas) {
  const auto variable = with_ids(Aggregation::kNone);
  EXPECT_EQ(code_of([&] { variable.read_value(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { variable.value(); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(floats(strategy.run([&] { return variable.read_value(); })), ElementsAre(0, 1));
}

TEST_F(OnReadVariable, OfTheFirstReplicaStillLetsEveryReplicaWriteItsOwn) {
  auto variable = make(2.0, Aggregation::kOnlyFirstReplica);
  strategy.run([&](ReplicaContext& context) { variable.assign_add(scalar(5 * (context.replica_id_in_sync_group() + 1))); });
  EXPECT_THAT(components(variable), ElementsAre(7, 12));
  EXPECT_THAT(floats(variable.read_value()), ElementsAre(7));
}

TEST_F(OnReadVariable, ConvertsWhatIsWrittenToItsDtype) {
  const auto expect_one = [&](const std::function<void(Variable&)>& write) {
    for (const bool is_across : {false, true}) {
      auto variable = make(0.0, Aggregation::kMean);
      if (is_across) write(variable);
      else strategy.run([&] { write(variable); });
      EXPECT_THAT(components(variable), ElementsAre(1, 1));
      EXPECT_EQ(variable.read_value().scalar_type(), at::kFloat);
    }
  };
  expect_one([](Variable& variable) { variable.assign(1); });
  expect_one([](Variable& variable) { variable.assign_add(1); });
  expect_one([](Variable& variable) { variable.assign_sub(-1); });
  expect_one([](Variable& variable) { variable.assign(at::ones({}, at::kInt)); });
  expect_one([](Variable& variable) { variable.assign_add(at::ones({}, at::kInt)); });
}

TEST(OnReadVariableOnOneReplica, IsUsedLikeATensorInARun) {
  MirroredStrategy strategy(cpus(1));
  const auto scope = strategy.scope();
  const Variable variable(vec({1}), {.synchronization = Sync::kOnRead, .aggregation = Aggregation::kMean});
  const auto results = strategy.run([](const Variable& v) { return v.value() + 1; }, variable);
  EXPECT_THAT(floats(results), ElementsAre(2));
}

}  // namespace
}  // namespace lockstep::testing
