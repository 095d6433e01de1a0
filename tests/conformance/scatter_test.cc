#include <functional>

#include "tests/conformance/testing.h"

// Row-wise writes of variables.

namespace lockstep::testing {
namespace {

using Scatter = Variable& (Variable::*)(const IndexedSlices&);
constexpr Scatter kAllScatters[] = {&Variable::scatter_add,   &Variable::scatter_sub, &Variable::scatter_mul,
                                    &Variable::scatter_div,   &Variable::scatter_min, &Variable::scatter_max,
                                    &Variable::scatter_update};

IndexedSlices rows(const Floats& values, const Ints& indices) { return {vec(values), ints_vec(indices)}; }

class ScatterInReplicas : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  // Every replica writes make(its id).
  void scatter(Variable& variable, Scatter how, const std::function<IndexedSlices(int id)>& make) {
    strategy.run([&](ReplicaContext& context) { (variable.*how)(make(context.replica_id_in_sync_group())); });
  }
};

IndexedSlices growing_rows(int id) { return rows({id + 0.0, id + 1.0}, {id, id + 1}); }

TEST_F(ScatterInReplicas, SubtractsTheMeanOfTheRows) {
  Variable variable(vec({0, 0, 0}), {.aggregation = Aggregation::kMean});
  scatter(variable, &Variable::scatter_sub, growing_rows);
  EXPECT_THAT(components(variable), ElementsAre(0, -1, -1, 0, -1, -1));
}

TEST_F(ScatterInReplicas, AddsTheSumOfTheRows) {
  Variable variable(at::zeros({3}, at::kInt), {.aggregation = Aggregation::kSum});
  scatter(variable, &Variable::scatter_add, [](int id) {
    return IndexedSlices{at::tensor({id, id + 1}, at::kInt), ints_vec({id, id + 1})};
  });
  EXPECT_THAT(components(variable), ElementsAre(0, 2, 2, 0, 2, 2));
}

TEST_F(ScatterInReplicas, MultipliesByTheHalvedRowsOfAMean) {
  Variable variable(vec({2, 1, 1}), {.aggregation = Aggregation::kMean});
  scatter(variable, &Variable::scatter_mul, [](int id) { return rows({id + 2.0}, {id}); });
  EXPECT_THAT(components(variable), ElementsAre(2, 1.5, 1, 2, 1.5, 1));
}

TEST_F(ScatterInReplicas, MinMaxAndUpdateHaveNoSumAndNoMean) {
  for (const auto aggregation : {Aggregation::kSum, Aggregation::kMean}) {
    Variable variable(vec({0, 0, 0}), {.aggregation = aggregation});
    for (const Scatter how : {&Variable::scatter_min, &Variable::scatter_max, &Variable::scatter_update}) {
      EXPECT_EQ(code_of([&] { scatter(variable, how, growing_rows); }), ErrorCode::kUnimplemented);
      EXPECT_EQ(code_of([&] { (variable.*how)(growing_rows(0)); }), ErrorCode::kUnimplemented);
    }
  }
}

TEST_F(ScatterInReplicas, OnlyTheFirstReplicasRowsCount) {
  const auto write = [&](Scatter how, double value, std::int64_t row) {
    Variable variable(vec({0, 0, 0}), {.aggregation = Aggregation::kOnlyFirstReplica});
    scatter(variable, how, [=](int id) { return rows({value + 100 * id}, {row}); });
    return components(variable);
  };
  EXPECT_THAT(write(&Variable::scatter_max, 1, 0), ElementsAre(1, 0, 0, 1, 0, 0));
  EXPECT_THAT(write(&Variable::scatter_update, 3, 1), ElementsAre(0, 3, 0, 0, 3, 0));
}

TEST_F(ScatterInReplicas, WithoutAnAggregationWritesTheReplicasOwnComponent) {
  Variable variable(vec({4}));
  const std::pair<Scatter, double> sequence[] = {
      {&Variable::scatter_sub, 2}, {&Variable::scatter_add, 4}, {&Variable::scatter_max, 4},   {&Variable::scatter_min, 2},
      {&Variable::scatter_mul, 4}, {&Variable::scatter_div, 2}, {&Variable::scatter_update, 2}};
  for (const auto& [how, expected] : sequence) {
    scatter(variable, how, [](int) { return rows({2}, {0}); });
    EXPECT_THAT(components(variable), ElementsAre(expected, expected));
  }
  scatter(variable, &Variable::scatter_add, [](int id) { return rows({id + 0.0}, {0}); });
  EXPECT_THAT(components(variable), ElementsAre(2, 3));
}

TEST_F(ScatterInReplicas, VariablesSynchronisedOnReadHaveNoRowWiseWrites) {
  for (const auto aggregation : kAllAggregations) {
    Variable variable(vec({0, 0, 0}), {.synchronization = Sync::kOnRead, .aggregation = aggregation});
    for (const Scatter how : kAllScatters) {
      EXPECT_EQ(code_of([&] { (variable.*how)(growing_rows(0)); }), ErrorCode::kUnimplemented);
      EXPECT_EQ(code_of([&] { scatter(variable, how, growing_rows); }), ErrorCode::kUnimplemented);
    }
  }
}

TEST(ScatterOnPlainVariable, RowWiseWritesFollowEachOther) {
  Variable variable(vec({0, 0, 0}));
  const auto write = [&](Scatter how, const IndexedSlices& slices) { return floats((variable.*how)(slices)); };
  EXPECT_THAT(write(&Variable::scatter_add, rows({1, 2}, {0, 2})), ElementsAre(1, 0, 2));
  EXPECT_THAT(write(&Variable::scatter_div, rows({4, 2}, {0, 2})), ElementsAre(.25, 0, 1));
  EXPECT_THAT(write(&Variable::scatter_max, rows({1, .5}, {1, 2})), ElementsAre(.25, 1, 1));
  EXPECT_THAT(write(&Variable::scatter_min, rows({1, .5}, {0, 1})), ElementsAre(.25, .5, 1));
  EXPECT_THAT(write(&Variable::scatter_mul, rows({2, .5}, {0, 1})), ElementsAre(.5, .25, 1));
  EXPECT_THAT(write(&Variable::scatter_sub, rows({2, .5}, {0, 1})), ElementsAre(-1.5, -.25, 1));
  EXPECT_THAT(write(&Variable::scatter_update, rows({2, .5}, {0, 1})), ElementsAre(2, .5, 1));
}

}  // namespace
}  // namespace lockstep::testing
