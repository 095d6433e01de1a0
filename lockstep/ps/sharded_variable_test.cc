#include "lockstep/ps/sharded_variable.h"

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>

#include <random>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using at::indexing::Ellipsis;
using at::indexing::None;
using at::indexing::Slice;
using at::indexing::TensorIndex;
using ::testing::ElementsAre;
using testing::ThrowsCode;

// The rows of `whole` in shards of these sizes.
ShardedVariable sharded(const at::Tensor& whole, const std::vector<std::int64_t>& sizes) {
  std::vector<Variable> variables;
  for (const auto& piece : whole.split_with_sizes(sizes, 0)) variables.emplace_back(piece);
  return ShardedVariable(std::move(variables), "w");
}

// 11 rows of 3, all items different.
at::Tensor numbers() { return at::arange(33, at::kFloat).reshape({11, 3}); }
ShardedVariable even() { return sharded(numbers(), {3, 3, 3, 2}); }

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

TEST(ShardedVariable, HasTheFormOfTheWhole) {
  const auto variable = even();
  EXPECT_EQ(variable.sizes(), (std::vector<std::int64_t>{11, 3}));
  EXPECT_EQ(variable.scalar_type(), at::kFloat);
  EXPECT_EQ(variable.name(), "w");
  EXPECT_EQ(variable.variables().size(), 4);
  EXPECT_TRUE(variable.value().equal(numbers()));
  EXPECT_EQ(ShardedVariable({Variable(numbers())}).name(), "ShardedVariable");
}

TEST(ShardedVariable, RefusesShardsThatAreNotOfOneWhole) {
  const Variable floats(at::zeros({2, 3}));
  EXPECT_THAT([] { ShardedVariable({}, "w"); }, ThrowsCode(ErrorCode::kInvalidArgument, "'w'", "no variables"));
  EXPECT_THAT(
      [&] {
        ShardedVariable({floats, Variable(at::zeros({2, 3}, at::kInt))});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "dtype"));
  EXPECT_THAT(
      [&] {
        ShardedVariable({floats, Variable(at::zeros({2, 4}))});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "[2, 4]"));
  EXPECT_THAT([&] { ShardedVariable({Variable(1.0)}); }, ThrowsCode(ErrorCode::kInvalidArgument, "first dimension"));
}

TEST(ShardedVariable, GradientsReachTheShards) {
  const auto variable = even();
  (variable.index({Slice(2, 4)}) * 5).sum().backward();
  EXPECT_TRUE(variable.variables()[0].value().grad().equal(at::tensor({0., 0., 5.}, at::kFloat).unsqueeze(1).expand({3, 3})));
  EXPECT_TRUE(variable.variables()[1].value().grad().equal(at::tensor({5., 0., 0.}, at::kFloat).unsqueeze(1).expand({3, 3})));
  EXPECT_FALSE(variable.variables()[2].value().grad().defined());
}

TEST(ShardedVariable, WritesEveryShardItsRows) {
  auto variable = even();
  const auto copy = variable;  // another handle of it
  EXPECT_TRUE(variable.assign(numbers() * 2).value().equal(numbers() * 2));
  EXPECT_TRUE(variable.assign_add(numbers().to(at::kDouble)).value().equal(numbers() * 3));
  EXPECT_TRUE(variable.assign_sub(numbers()).value().equal(numbers() * 2));
  EXPECT_TRUE(copy.value().equal(numbers() * 2));
  EXPECT_TRUE(variable.variables()[1].value().equal(numbers().slice(0, 3, 6) * 2));
}

TEST(ShardedVariable, RefusesAWriteOfAnotherShapeAndWritesNothing) {
  auto variable = even();
  for (const auto& value : {at::ones({10, 3}), at::ones({11}), at::ones({12, 3}), at::Tensor()})
    EXPECT_THAT([&] { variable.assign(value); }, ThrowsCode(ErrorCode::kInvalidArgument, "'w'", "[11, 3]"));
  EXPECT_TRUE(variable.value().equal(numbers()));
}

TEST(ShardedVariable, ScattersToTheShardsThatHaveTheRows) {
  using Scatter =
      std::pair<ShardedVariable& (ShardedVariable::*)(const IndexedSlices&), Variable& (Variable::*)(const IndexedSlices&)>;
  const IndexedSlices slices{at::arange(1, 16, at::kFloat).reshape({5, 3}), longs({8, 1, 6, 1, 10})};
  for (const auto& [of_shards, plain] : {Scatter{&ShardedVariable::scatter_add, &Variable::scatter_add},
                                         {&ShardedVariable::scatter_sub, &Variable::scatter_sub},
                                         {&ShardedVariable::scatter_mul, &Variable::scatter_mul},
                                         {&ShardedVariable::scatter_div, &Variable::scatter_div},
                                         {&ShardedVariable::scatter_min, &Variable::scatter_min},
                                         {&ShardedVariable::scatter_max, &Variable::scatter_max},
                                         {&ShardedVariable::scatter_update, &Variable::scatter_update}}) {
    auto variable = even();
    Variable whole(numbers());
    EXPECT_TRUE((variable.*of_shards)(slices).value().equal((whole.*plain)(slices)));
  }
}

TEST(ShardedVariable, RefusesScattersThatDoNotFitAndWritesNothing) {
  auto variable = even();
  const auto is_refused = ThrowsCode(ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({2, 3}), longs({0, 11})}); }, is_refused);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({2, 3}), longs({0, -1})}); }, is_refused);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({2, 4}), longs({0, 4})}); }, is_refused);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({1, 3}), longs({0, 4})}); }, is_refused);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({1, 3}), longs({0}).unsqueeze(0)}); }, is_refused);
  EXPECT_THAT([&] { variable.scatter_add({at::ones({1, 3}), at::ones({1})}); }, is_refused);
  EXPECT_TRUE(variable.value().equal(numbers()));
}

TEST(ShardedVariable, RowWiseUseNeedsAnEvenDivision) {
  auto variable = sharded(numbers(), {1, 10});
  EXPECT_THAT([&] { variable.scatter_add({at::ones({1, 3}), longs({0})}); }, ThrowsCode(ErrorCode::kUnimplemented, "evenly"));
  EXPECT_THAT([&] { variable.sparse_read(longs({0})); }, ThrowsCode(ErrorCode::kUnimplemented, "evenly"));
  EXPECT_TRUE(variable.gather_rows(longs({5, 0})).equal(numbers().index_select(0, longs({5, 0}))));
}

TEST(ShardedVariable, ReadsRowsInTheOrderOfTheShardsOrOfTheIndices) {
  const auto variable = even();
  EXPECT_TRUE(variable.sparse_read(longs({8, 6, 5, 6})).equal(numbers().index_select(0, longs({5, 8, 6, 6}))));
  const auto ids = longs({8, 6, 5, 6}).to(at::kInt);
  EXPECT_TRUE(variable.gather_rows(ids).equal(numbers().index_select(0, ids)));
  EXPECT_EQ(variable.gather_rows(longs({})).sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_THAT([&] { variable.gather_rows(longs({0, 11})); }, ThrowsCode(ErrorCode::kInvalidArgument, "row 11"));
  EXPECT_THAT([&] { variable.gather_rows(at::ones({2})); }, ThrowsCode(ErrorCode::kInvalidArgument, "int64"));
}

// Python's range(size)[start:stop:step], counted one by one.
std::vector<std::int64_t> rows_of_python(std::int64_t size, const std::optional<std::int64_t> (&parts)[3]) {
  const auto step = parts[2].value_or(1);
  const auto position = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
    if (!given) return otherwise;
    if (*given < 0) return *given + size < 0 ? (step < 0 ? -1 : 0) : *given + size;
    return *given >= size ? (step < 0 ? size - 1 : size) : *given;
  };
  std::vector<std::int64_t> rows;
  const auto stop = position(parts[1], step < 0 ? -1 : size);
  for (auto row = position(parts[0], step < 0 ? size - 1 : 0); step < 0 ? row > stop : row < stop; row += step)
    rows.push_back(row);
  return rows;
}

TEST(ShardedVariable, SlicesAreThoseOfPython) {
  std::mt19937 random(7);
  const auto choose = [&]() -> std::optional<std::int64_t> {
    if (random() % 4 == 0) return std::nullopt;
    return static_cast<std::int64_t>(random() % 29) - 14;
  };
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{3, 3, 3, 2}, {11}, {1, 10}, {0, 5, 0, 6}}) {
    const auto variable = sharded(numbers(), sizes);
    for (int round = 0; round < 300; ++round) {
      const std::optional<std::int64_t> parts[] = {choose(), choose(), choose()};
      if (parts[2] == 0) continue;
      const auto to_torch = [](std::optional<std::int64_t> n) { return n ? c10::optional<std::int64_t>(*n) : c10::nullopt; };
      const Slice slice(to_torch(parts[0]), to_torch(parts[1]), to_torch(parts[2]));
      const auto wanted = numbers().index_select(0, longs(rows_of_python(11, parts)));
      EXPECT_TRUE(variable.index({slice}).equal(wanted)) << slice;
    }
  }
}

TEST(ShardedVariable, StepsOfAnyLengthAreFollowed) {
  const auto variable = even();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_TRUE(variable.index({Slice(1, None, kMost)}).equal(numbers().slice(0, 1, 2)));
  EXPECT_TRUE(variable.index({Slice(None, None, kLeast)}).equal(numbers().slice(0, 10, 11)));
  EXPECT_TRUE(variable.index({Slice(kLeast, kMost)}).equal(numbers()));
}

TEST(ShardedVariable, TakesTheIndicesOfATensor) {
  const auto variable = even();
  const auto whole = numbers();
  for (const auto& indices : std::vector<std::vector<TensorIndex>>{{0},
                                                                   {-1},
                                                                   {3},
                                                                   {Slice(), 0},
                                                                   {Ellipsis},
                                                                   {Ellipsis, 1},
                                                                   {None, Ellipsis},
                                                                   {None, Slice(2, 5), None, -1},
                                                                   {Slice(1, 4), None},
                                                                   {2, 1},
                                                                   {2, Ellipsis, Slice(1, None)},
                                                                   {2, 1, Ellipsis, None},
                                                                   {Slice(5, 2), 0},
                                                                   {None, 4, Slice(0, 0)},
                                                                   {}})
    EXPECT_TRUE(variable.index(indices).equal(indices.empty() ? whole : whole.index(indices))) << indices;
  EXPECT_TRUE(variable.index({Slice(1, 6, 2), Slice(None, None, -1)}).equal(whole.slice(0, 1, 6, 2).flip(1)));
}

TEST(ShardedVariable, RefusesIndicesThatDoNotFit) {
  const auto variable = even();
  EXPECT_THAT([&] { variable.index({11}); }, ThrowsCode(ErrorCode::kOutOfRange, "'w'", "index 11 of dimension 0"));
  EXPECT_THAT([&] { variable.index({-12}); }, ThrowsCode(ErrorCode::kOutOfRange, "index -12"));
  const auto is_refused = ThrowsCode(ErrorCode::kInvalidArgument);
  EXPECT_THAT([&] { variable.index({Slice(), 5}); }, is_refused);
  EXPECT_THAT([&] { variable.index({None, 11}); }, is_refused);
  EXPECT_THAT([&] { variable.index({0, 0, 0}); }, is_refused);
  EXPECT_THAT([&] { variable.index({Ellipsis, Ellipsis}); }, is_refused);
  EXPECT_THAT([&] { variable.index({longs({0, 1})}); }, ThrowsCode(ErrorCode::kInvalidArgument, "embedding_lookup"));
  EXPECT_THAT([&] { variable.index({Slice(), at::ones({3}, at::kBool)}); }, is_refused);
  EXPECT_THAT([&] { variable.index({true}); }, is_refused);
}

TEST(ShardedVariable, AMaskSaysWhichRowsOrItemsAreWanted) {
  const auto variable = even();
  for (const auto& mask : {numbers().select(1, 0) > 12, numbers().remainder(4) == 1, at::zeros({11}, at::kBool)})
    EXPECT_TRUE(variable.index({mask}).equal(numbers().index({mask})));
  EXPECT_THAT([&] { variable.index({at::ones({10}, at::kBool)}); }, ThrowsCode(ErrorCode::kInvalidArgument, "mask", "[10]"));
}

TEST(ShardedVariable, ArithmeticIsTheTensors) {
  const auto a = even();
  const auto b = sharded(numbers() + 1, {11});
  EXPECT_TRUE((a + b).equal(numbers() * 2 + 1));
  EXPECT_TRUE((b - a).equal(at::ones({11, 3})));
  EXPECT_TRUE((2 * a).equal(numbers() * 2));
  EXPECT_TRUE((a / at::full({1}, 2.0)).equal(numbers() / 2));
  EXPECT_TRUE((-a).equal(-numbers()));
  EXPECT_TRUE((a == a).all().item<bool>());
  EXPECT_FALSE((a == b).any().item<bool>());
  EXPECT_EQ(at::Tensor(a).sum().item<double>(), 528);
}

TEST(ShardedVariable, IsRestoredIntoAnyNumberOfShards) {
  const auto saved = even().saved_value();
  EXPECT_FALSE(saved.requires_grad());
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{11}, {6, 5}, {1, 10}}) {
    auto other = sharded(at::zeros({11, 3}), sizes);
    other.restore(saved);
    EXPECT_TRUE(other.value().equal(numbers()));
  }
  auto shorter = sharded(at::zeros({10, 3}), {10});
  EXPECT_THAT([&] { shorter.restore(saved); }, ThrowsCode(ErrorCode::kInvalidArgument, "[10, 3]"));
}

}  // namespace
}  // namespace lockstep
