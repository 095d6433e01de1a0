#include <map>
#include <tuple>

#include "tests/conformance/testing.h"

// Values that a function gives for each replica, and Mirrored values.

namespace lockstep::testing {
namespace {

class ValuesFromFunction : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
};

TEST_F(ValuesFromFunction, OneSharedTensorBecomesOneComponentPerReplica) {
  const auto one = scalar(1);
  const auto values = strategy.experimental_distribute_values_from_function([&](const ValueContext&) { return one; });
  EXPECT_THAT(floats(strategy.experimental_local_results(values)), ElementsAre(1, 1));
}

TEST_F(ValuesFromFunction, OneArrayBecomesOneComponentPerReplica) {
  const auto array = vec({1, 2, 3});
  const auto values = strategy.experimental_distribute_values_from_function([&](const ValueContext&) { return array; });
  ASSERT_EQ(values.size(), 2u);
  for (const auto& value : values) EXPECT_THAT(floats(value), ElementsAre(1, 2, 3));
}

TEST_F(ValuesFromFunction, StructuresAreMadeForEachReplica) {
  const auto values = strategy.experimental_distribute_values_from_function([](const ValueContext& context) {
    EXPECT_EQ(context.num_replicas_in_sync, 2);
    const double id = context.replica_id_in_sync_group;
    return std::tuple(1 * id, 2 * id, 3 * id);
  });
  EXPECT_THAT(values.values(), ElementsAre(std::tuple(0.0, 0.0, 0.0), std::tuple(1.0, 2.0, 3.0)));
}

TEST_F(ValuesFromFunction, SparseTensorsStaySparse) {
  const auto values = strategy.experimental_distribute_values_from_function([](const ValueContext&) {
    return at::sparse_coo_tensor(ints_vec({0, 1, 0, 2}).view({2, 2}), vec({1, 2}), {3, 4});
  });
  for (const auto& value : strategy.experimental_local_results(values)) {
    EXPECT_TRUE(value.is_sparse());
    EXPECT_THAT(floats(value.to_dense()), ElementsAre(1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0));
  }
}

TEST_F(ValuesFromFunction, AreArgumentsOfRun) {
  const auto ids = strategy.experimental_distribute_values_from_function(
      [](const ValueContext& context) { return scalar(context.replica_id_in_sync_group); });
  EXPECT_THAT(floats(strategy.run([](at::Tensor id) { return id * id; }, ids)), ElementsAre(0, 1));
}

TEST(ValuesFromFunctionOnAnyDevice, StayWhereTheFunctionPutThem) {
  MirroredStrategy strategy({}, {.replicas_per_device = 2});  // the GPUs where there are any
  const auto values = strategy.experimental_distribute_values_from_function([](const ValueContext&) { return scalar(1); });
  for (const auto& value : values) EXPECT_TRUE(value.is_cpu());
}

TEST(MirroredValue, ActsAsItsComponent) {
  const Mirrored<at::Tensor> three({scalar(3), scalar(3)});
  EXPECT_THAT(floats(three.get() + three.get()), ElementsAre(6));
  EXPECT_THAT(floats(three.get() + 1), ElementsAre(4));
  MirroredStrategy strategy(cpus(2));
  const auto sums = strategy.run([](at::Tensor component) { return component + 1; }, three);
  EXPECT_THAT(floats(sums), ElementsAre(4, 4));
}

TEST(VariableAsTensor, ConvertsInEveryContext) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable variable(3.0);
  const auto as_tensor = [](const at::Tensor& tensor) { return tensor.detach(); };
  EXPECT_THAT(floats(as_tensor(variable)), ElementsAre(3));
  EXPECT_THAT(floats(strategy.run([&] { return as_tensor(variable); })), ElementsAre(3, 3));
}

}  // namespace
}  // namespace lockstep::testing
