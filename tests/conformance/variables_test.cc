#include "tests/conformance/testing.h"

// Mirrored variables (synchronised on write): what writes and reads do in each context, by aggregation.

namespace lockstep::testing {
namespace {

class MirroredVariable : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  PerReplica<at::Tensor> read_in_replicas(const Variable& variable) {
    return strategy.run([&] { return variable.read_value(); });
  }
};

TEST_F(MirroredVariable, ANumberInReplicasHasNoSum) {
  Variable variable(1.0, {.aggregation = Aggregation::kSum});
  EXPECT_EQ(code_of([&] { strategy.run([&] { variable.assign(5.0); }); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(components(variable), ElementsAre(1, 1));
}

TEST_F(MirroredVariable, ANumberInReplicasIsItsOwnMean) {
  Variable assigned(1.0, {.aggregation = Aggregation::kMean});
  strategy.run([&] { assigned.assign(5.0); });
  EXPECT_THAT(components(assigned), ElementsAre(5, 5));

  Variable added(1.0, {.aggregation = Aggregation::kMean});
  strategy.run([&] { added.assign_add(5.0); });
  EXPECT_THAT(components(added), ElementsAre(6, 6));

  Variable subtracted(5.0, {.aggregation = Aggregation::kMean});
  strategy.run([&] { subtracted.assign_sub(1.0); });
  EXPECT_THAT(components(subtracted), ElementsAre(4, 4));
}

TEST_F(MirroredVariable, AWriteAcrossReplicasReachesEveryComponent) {
  Variable assigned(1.0);
  EXPECT_THAT(floats(assigned.assign(6.0)), ElementsAre(6));
  EXPECT_THAT(components(assigned), ElementsAre(6, 6));

  Variable added(1.0);
  EXPECT_THAT(floats(added.assign_add(6.0)), ElementsAre(7));
  added.assign_add(2.0);
  EXPECT_THAT(components(added), ElementsAre(9, 9));

  Variable subtracted(5.0);
  EXPECT_THAT(floats(subtracted.assign_sub(2.0)), ElementsAre(3));
  EXPECT_THAT(components(subtracted), ElementsAre(3, 3));
}

TEST_F(MirroredVariable, TakesAnotherMirroredVariablesValueInEveryContext) {
  const Variable two(2.0);
  const Variable minus_two(-2.0);
  for (const auto aggregation : {Aggregation::kNone, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto expect_two = [&](const auto& write) {
      Variable across(0.0, {.aggregation = aggregation});
      write(across);
      EXPECT_THAT(components(across), ElementsAre(2, 2)) << aggregation;
      Variable inside(0.0, {.aggregation = aggregation});
      strategy.run([&] { write(inside); });
      EXPECT_THAT(components(inside), ElementsAre(2, 2)) << aggregation;
    };
    expect_two([&](Variable& variable) { variable.assign(two); });
    expect_two([&](Variable& variable) { variable.assign_add(two); });
    expect_two([&](Variable& variable) { variable.assign_sub(minus_two); });
  }
}

TEST_F(MirroredVariable, AggregatesWhatTheReplicasWrite) {
  const auto twos = scalars({2, 2});
  const auto minus_twos = scalars({-2, -2});
  const std::pair<Aggregation, double> cases[] = {
      {Aggregation::kSum, 4}, {Aggregation::kMean, 2}, {Aggregation::kOnlyFirstReplica, 2}};
  for (const auto& [aggregation, expected] : cases) {
    const auto expect_written = [&, expected = expected, aggregation = aggregation](const auto& write) {
      Variable variable(0.0, {.aggregation = aggregation});
      strategy.run([&] { write(variable); });
      EXPECT_THAT(components(variable), ElementsAre(expected, expected)) << aggregation;
    };
    expect_written([&](Variable& variable) { variable.assign(twos.local()); });
    expect_written([&](Variable& variable) { variable.assign_add(twos.local()); });
    expect_written([&](Variable& variable) { variable.assign_sub(minus_twos.local()); });
  }
}

TEST_F(MirroredVariable, AReplicaReadsWhatWasJustWritten) {
  Variable variable(1.0, {.aggregation = Aggregation::kMean});
  const auto read = strategy.run([&] {
    variable.assign_add(1.0);
    return variable.value().detach().clone();
  });
  EXPECT_THAT(floats(read), ElementsAre(2, 2));
}

TEST_F(MirroredVariable, ReadsAreTheReplicasComponentAndAreNeverAggregated) {
  for (const auto aggregation : kAllAggregations) {
    Variable variable(2.0, {.aggregation = aggregation});
    EXPECT_THAT(floats(variable.read_value()), ElementsAre(2)) << aggregation;
    EXPECT_THAT(floats(read_in_replicas(variable)), ElementsAre(2, 2)) << aggregation;
    set_components(variable, {3, 4});
    EXPECT_THAT(floats(read_in_replicas(variable)), ElementsAre(3, 4)) << aggregation;
    EXPECT_THAT(floats(strategy.run([&] { return variable.value().detach(); })), ElementsAre(3, 4)) << aggregation;
  }
}

TEST_F(MirroredVariable, IsUsedLikeATensor) {
  const Variable variable(at::ones({}, at::kInt), {.aggregation = Aggregation::kSum});
  const auto add_one = [](const at::Tensor& value) { return value + 1; };
  EXPECT_THAT(floats(add_one(variable)), ElementsAre(2));
  EXPECT_THAT(floats(strategy.run([&] { return add_one(variable); })), ElementsAre(2, 2));
}

TEST_F(MirroredVariable, OnlyTheFirstReplicasWriteCounts) {
  Variable variable(3.0, {.aggregation = Aggregation::kOnlyFirstReplica});
  strategy.run([&](ReplicaContext& context) { variable.assign_add(scalar(7 * (context.replica_id_in_sync_group() + 1))); });
  EXPECT_THAT(components(variable), ElementsAre(10, 10));
}

TEST(PlainVariable, IsUsedLikeATensor) {
  const Variable variable(7.0);
  const at::Tensor v = variable;
  const auto results = {v + 1, 3 + v, v - 2, v * 2, v * v, v / 2, 14 / v, v.pow(3), at::pow(2, v)};
  EXPECT_THAT(floats(std::vector<at::Tensor>(results)), ElementsAre(8, 10, 5, 14, 49, 3.5, 2, 343, 128));
}

TEST(PlainVariable, ItsValueIsLive) {
  const Variable variable(vec({2, .5, 1}));
  const at::NoGradGuard no_grad;
  variable.value()[0].fill_(1);
  EXPECT_THAT(floats(variable.read_value()), ElementsAre(1, .5, 1));
}

}  // namespace
}  // namespace lockstep::testing
