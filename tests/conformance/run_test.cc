#include <map>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "tests/conformance/testing.h"

// Strategy::run: arguments, results, exceptions. Results are always a PerReplica of what the function returned.

namespace lockstep::testing {
namespace {

using TensorMap = std::map<std::string, at::Tensor>;

TEST(Run, GivesEachReplicaItsPartAndReturnsEachReplicasStructure) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.run([](at::Tensor x) { return TensorMap{{"a", 2 * x}, {"b", x * x}}; }, scalars({1, 2}));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(floats(results[0].at("a")), ElementsAre(2));
  EXPECT_THAT(floats(results[1].at("a")), ElementsAre(4));
  EXPECT_THAT(floats(results[0].at("b")), ElementsAre(1));
  EXPECT_THAT(floats(results[1].at("b")), ElementsAre(4));
}

TEST(Run, TakesSeveralDistributedArguments) {
  MirroredStrategy strategy(cpus(2));
  const auto sum = [](at::Tensor a, at::Tensor b) { return a + 2 * b + 2; };
  EXPECT_THAT(floats(strategy.run(sum, scalars({2, 4}), scalars({1, 4}))), ElementsAre(6, 14));
}

TEST(Run, DistributedValuesMeetVariablesInTheReplica) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable variable(1.25);
  const auto results = strategy.run([&](at::Tensor factor) { return factor * variable.value(); }, scalars({5, 3}));
  EXPECT_THAT(floats(results), ElementsAre(6.25, 3.75));
}

struct CustomError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Run, AnExceptionOfAReplicaReachesTheCallerWithItsType) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THROW(strategy.run([] { throw CustomError("every replica"); }), CustomError);
  EXPECT_THROW(strategy.run([](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 1) throw CustomError("one replica");
    context.merge_call([](Strategy&) {});  // must not wait for the one that is gone
  }),
               CustomError);
  EXPECT_THROW(
      strategy.run([](ReplicaContext& context) { context.merge_call([](Strategy&) { throw CustomError("merge_call"); }); }),
      CustomError);
  EXPECT_THAT(strategy.run([] { return 1; }).values(), ElementsAre(1, 1));  // still usable
}

TEST(Run, ResultsAreTheSameInRepeatedCalls) {
  MirroredStrategy strategy(cpus(2));
  const auto id = [](ReplicaContext& context) { return context.replica_id_in_sync_group(); };
  for (int call = 0; call < 10; ++call) EXPECT_THAT(strategy.run(id).values(), ElementsAre(0, 1));
}

TEST(Run, FunctionsComputeWithTheReplicasVariablesAndTheirGradients) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable v(1.25);
  const Variable w(2.0);
  const auto twice = [&] { return 2 * v.value(); };
  EXPECT_THAT(floats(strategy.run(twice)), ElementsAre(2.5, 2.5));
  EXPECT_THAT(floats(strategy.run([&] { return twice() + 1; })), ElementsAre(3.5, 3.5));

  const auto both = [&] { return twice() + w.value() + 1; };
  EXPECT_THAT(floats(strategy.run(both)), ElementsAre(5.5, 5.5));
  const auto gradients = strategy.run([&] { return torch::autograd::grad({both()}, {v.value(), w.value()}); });
  for (const auto& of_replica : gradients) EXPECT_THAT(floats(of_replica), ElementsAre(2, 1));
}

TEST(LocalResults, AreOneValuePerReplica) {
  MirroredStrategy strategy(cpus(2));
  const auto ids = strategy.run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  EXPECT_THAT(strategy.experimental_local_results(ids), ElementsAre(0, 1));
}

TEST(LocalResults, KeepStructures) {
  MirroredStrategy strategy(cpus(2));
  using IntMap = std::map<std::string, int>;
  const auto results = strategy.run([](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    return IntMap{{"a", id + 1}, {"b", id + 2}};
  });
  EXPECT_THAT(strategy.experimental_local_results(results),
              ElementsAre(IntMap{{"a", 1}, {"b", 2}}, IntMap{{"a", 2}, {"b", 3}}));
}

TEST(LocalResults, OfAPlainValueAreTheValue) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(strategy.experimental_local_results(7), ElementsAre(7));
}

TEST(RunResults, ListsOfDifferentLengthAreRefusedByReduce) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.run([](ReplicaContext& context) {
    return std::vector<at::Tensor>(static_cast<std::size_t>(context.replica_id_in_sync_group()), scalar(1));
  });
  EXPECT_EQ(results[0].size(), 0u);
  EXPECT_EQ(results[1].size(), 1u);
  EXPECT_EQ(code_of([&] { strategy.reduce("sum", results); }), ErrorCode::kInvalidArgument);
}

TEST(RunResults, NestedStructuresKeepTheirShapeInEveryReplica) {
  MirroredStrategy strategy(cpus(2));
  using Nested = std::tuple<std::string, std::tuple<std::string, std::map<std::string, std::string>, std::string>, std::string>;
  const auto make = [](const std::string& id) {
    return Nested{"a" + id, {"b" + id, {{"c", "d" + id}, {"e", "f" + id}}, "g" + id}, "h" + id};
  };
  const auto results =
      strategy.run([&](ReplicaContext& context) { return make(std::to_string(context.replica_id_in_sync_group())); });
  EXPECT_EQ(results[0], make("0"));
  EXPECT_EQ(results[1], make("1"));
}

TEST(RunResults, OneSharedObjectIsStillOneResultPerReplica) {
  MirroredStrategy strategy(cpus(2));
  const auto shared = scalar(7);
  const auto same = strategy.run([&] { return shared; });
  ASSERT_EQ(same.size(), 2u);
  for (const auto& component : same) EXPECT_TRUE(component.is_same(shared));
  const auto different = strategy.run([&] { return shared.clone(); });
  ASSERT_EQ(different.size(), 2u);
  EXPECT_FALSE(different[0].is_same(different[1]));
}

TEST(RunResults, OneReplicaGivesAPerReplicaOfOne) {
  MirroredStrategy strategy(cpus(1));
  const auto results = strategy.run([] { return std::tuple(scalar(1), std::string("b")); });
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(floats(std::get<0>(results[0])), ElementsAre(1));
  EXPECT_EQ(std::get<1>(results[0]), "b");
}

TEST(RunResults, ReduceKeepsTheTypeOfAMap) {
  MirroredStrategy strategy(cpus(2));
  using HashMap = std::unordered_map<std::string, at::Tensor>;
  const auto results = strategy.run([](at::Tensor x) { return HashMap{{"a", x}, {"b", x + 1}}; }, scalars({1, 2}));
  const auto reduced = strategy.reduce("sum", results);
  static_assert(std::is_same_v<decltype(reduced), const HashMap>);
  EXPECT_THAT(floats(reduced.at("a")), ElementsAre(3));
  EXPECT_THAT(floats(reduced.at("b")), ElementsAre(5));

  const auto ordered = strategy.run([](at::Tensor x) { return TensorMap{{"a", x}}; }, scalars({1, 2}));
  static_assert(std::is_same_v<decltype(strategy.reduce("sum", ordered)), TensorMap>);
  EXPECT_THAT(floats(strategy.reduce("sum", ordered).at("a")), ElementsAre(3));
}

TEST(SelectReplica, TakesTheComponentEverywhereInAStructure) {
  const PerReplica<std::string> names({"x0", "x1"});
  const auto structure = std::tuple(names, std::vector<PerReplica<std::string>>{names, names},
                                    std::map<std::string, PerReplica<std::string>>{{"k", names}}, std::string("plain"));
  const auto selected = select_replica(1, structure);
  EXPECT_EQ(std::get<0>(selected), "x1");
  EXPECT_THAT(std::get<1>(selected), ElementsAre("x1", "x1"));
  EXPECT_EQ(std::get<2>(selected).at("k"), "x1");
  EXPECT_EQ(std::get<3>(selected), "plain");
}

TEST(SelectReplica, PassesAVariableWhole) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable variable(1.0);
  EXPECT_EQ(select_replica(0, variable), variable);
  EXPECT_EQ(select_replica(1, variable), variable);
}

}  // namespace
}  // namespace lockstep::testing
