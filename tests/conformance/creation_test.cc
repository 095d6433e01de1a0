#include "tests/conformance/testing.h"

// How variables come into being: names, defaults, initial values, in scope() and inside run().

namespace lockstep::testing {
namespace {

class VariableCreation : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();
};

TEST_F(VariableCreation, TrainableDependsOnTheSynchronization) {
  EXPECT_TRUE(Variable(1.0).trainable());
  EXPECT_TRUE(Variable(1.0, {.synchronization = Sync::kOnWrite}).trainable());
  EXPECT_FALSE(Variable(1.0, {.synchronization = Sync::kOnRead}).trainable());
  EXPECT_TRUE(Variable(1.0, {.trainable = true, .synchronization = Sync::kOnRead}).trainable());
  EXPECT_FALSE(Variable(1.0, {.trainable = false}).trainable());
}

TEST_F(VariableCreation, AMeanOfIntegersIsRefused) {
  EXPECT_EQ(code_of([] { Variable(at::ones({}, at::kInt), {.aggregation = Aggregation::kMean}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Variable(at::ones({}, at::kInt), {.aggregation = Aggregation::kSum}); }), std::nullopt);
}

TEST_F(VariableCreation, SynchronizationNoneIsRefused) {
  EXPECT_EQ(code_of([] { Variable(1.0, {.synchronization = Sync::kNone}); }), ErrorCode::kInvalidArgument);
}

TEST_F(VariableCreation, NamesAreKeptAndNumberedByReplica) {
  EXPECT_EQ(Variable(1.0).name(), "Variable");
  const Variable named(1.0, {.name = "foo"});
  EXPECT_EQ(named.name(), "foo");
  EXPECT_THAT(named.component_names(), ElementsAre("foo", "foo/replica_1"));
  const auto made_inside = strategy.run([] { return Variable(1.0).name(); });
  EXPECT_THAT(made_inside.values(), ElementsAre("Variable", "Variable"));
}

TEST_F(VariableCreation, InsideRunRandomInitialValuesAgree) {
  for (const auto synchronization : {Sync::kOnWrite, Sync::kOnRead}) {
    int calls = 0;
    const auto variables = strategy.run([&] {
      const std::function<at::Tensor()> initializer = [&] {
        ++calls;
        return at::randn({5, 4});
      };
      return Variable(initializer, {.synchronization = synchronization, .aggregation = Aggregation::kMean});
    });
    EXPECT_EQ(variables[0], variables[1]);
    ASSERT_EQ(variables[0].size(), 2u);
    EXPECT_TRUE(at::equal(variables[0].components()[0], variables[0].components()[1])) << synchronization;
    EXPECT_EQ(calls, 1) << synchronization;
  }
}

TEST_F(VariableCreation, InsideRunZerosAreZerosInEveryReplica) {
  const auto values = strategy.run([] { return Variable([] { return at::zeros({}); }).read_value(); });
  EXPECT_THAT(floats(values), ElementsAre(0, 0));
}

TEST_F(VariableCreation, InsideRunSeveralNamesOfOneCanonicalNameAreMatchedInOrder) {
  const auto variables = strategy.run([] {
    std::vector<Variable> made;
    double value = 0;
    for (const char* name : {"foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"})
      made.emplace_back(++value, VariableOptions{.name = name});
    return made;
  });
  ASSERT_EQ(variables[0].size(), 4u);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < variables[0].size(); ++k) {
    EXPECT_EQ(variables[0][k], variables[1][k]);
    EXPECT_EQ(components(variables[0][k]), Floats(2, k + 1.0));
    names.push_back(variables[0][k].name());
  }
  EXPECT_THAT(names, ElementsAre("foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"));
}

TEST_F(VariableCreation, InsideRunNumberedNamesAreOneVariableWithTheFirstReplicasName) {
  const auto variables = strategy.run(
      [](ReplicaContext& context) { return Variable(1.0, {.name = str("foo_", context.replica_id_in_sync_group())}); });
  EXPECT_EQ(variables[0], variables[1]);
  EXPECT_EQ(variables[1].name(), "foo_0");
}

TEST_F(VariableCreation, InsideRunDifferentNamesAreRefused) {
  EXPECT_EQ(code_of([&] {
              strategy.run([](ReplicaContext& context) {
                return Variable(1.0, {.name = context.replica_id_in_sync_group() == 0 ? "foo" : "bar"});
              });
            }),
            ErrorCode::kFailedPrecondition);
}

TEST(CanonicalVariableName, LosesOneDigitEndings) {
  EXPECT_EQ(internal::canonical_variable_name("foo_1/bar_2"), "foo/bar");
  EXPECT_EQ(internal::canonical_variable_name("foo_12"), "foo_12");
  EXPECT_EQ(internal::canonical_variable_name(""), "Variable");
}

}  // namespace
}  // namespace lockstep::testing
