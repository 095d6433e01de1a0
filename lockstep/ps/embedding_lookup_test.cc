#include "lockstep/ps/embedding_lookup.h"

#include <ATen/ATen.h>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

// [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]] in two shards.
at::Tensor numbers() { return at::arange(1, 11, at::kFloat).reshape({5, 2}); }
ShardedVariable table() { return ShardedVariable({Variable(numbers().slice(0, 0, 3)), Variable(numbers().slice(0, 3, 5))}); }

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }
at::Tensor floats(const std::vector<double>& values) { return at::tensor(values, at::kFloat); }

std::vector<float> items(const at::Tensor& value) {
  const auto flat = value.detach().contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

TEST(EmbeddingLookup, GivesTheRowsInTheOrderOfTheIds) {
  EXPECT_TRUE(embedding_lookup(table(), longs({4, 0, 3, 0})).equal(numbers().index_select(0, longs({4, 0, 3, 0}))));
  EXPECT_EQ(embedding_lookup(table(), longs({})).sizes(), (std::vector<std::int64_t>{0, 2}));
}

TEST(EmbeddingLookup, KeepsTheShapeOfTheIds) {
  const auto rows = embedding_lookup(table(), longs({0, 4, 2, 0}).reshape({2, 2}).to(at::kInt));
  EXPECT_EQ(rows.sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_THAT(items(rows), ElementsAre(1, 2, 9, 10, 5, 6, 1, 2));
  EXPECT_THAT(items(embedding_lookup(table(), at::scalar_tensor(3, at::kLong))), ElementsAre(7, 8));
}

TEST(EmbeddingLookup, RefusesIdsThatAreNotThere) {
  EXPECT_THAT([] { embedding_lookup(table(), longs({5})); }, ThrowsCode(ErrorCode::kInvalidArgument, "row 5"));
  EXPECT_THAT([] { embedding_lookup(table(), longs({-1})); }, ThrowsCode(ErrorCode::kInvalidArgument, "row -1"));
  EXPECT_THAT([] { embedding_lookup(table(), floats({1})); }, ThrowsCode(ErrorCode::kInvalidArgument, "int32"));
}

TEST(EmbeddingLookup, ShortensLongRows) {
  const ShardedVariable lengths({Variable(at::tensor({3., 4., .3, .4}, at::kFloat).reshape({2, 2}))});
  const auto rows = items(embedding_lookup(lengths, longs({0, 1}), 2.0));
  EXPECT_FLOAT_EQ(rows[0], 1.2);
  EXPECT_FLOAT_EQ(rows[1], 1.6);
  EXPECT_FLOAT_EQ(rows[2], .3);
  EXPECT_FLOAT_EQ(rows[3], .4);
  EXPECT_THAT([&] { embedding_lookup(lengths, longs({0}), 0.0); }, ThrowsCode(ErrorCode::kInvalidArgument, "max_norm"));
}

TEST(EmbeddingLookup, GradientsOfRepeatedIdsAddUp) {
  const auto variable = table();
  embedding_lookup(variable, longs({0, 4, 0})).sum().backward();
  EXPECT_THAT(items(variable.variables()[0].value().grad()), ElementsAre(2, 2, 0, 0, 0, 0));
  EXPECT_THAT(items(variable.variables()[1].value().grad()), ElementsAre(0, 0, 1, 1));
}

TEST(EmbeddingLookupSparse, CombinesTheRowsOfEachExample) {
  const SparseIds sparse{longs({0, 0, 1, 2}), longs({0, 3, 4, 1})};
  EXPECT_THAT(items(embedding_lookup_sparse(table(), sparse)), ElementsAre(4, 5, 9, 10, 3, 4));
  EXPECT_THAT(items(embedding_lookup_sparse(table(), sparse, Combiner::kSum)), ElementsAre(8, 10, 9, 10, 3, 4));
  const auto roots = embedding_lookup_sparse(table(), sparse, Combiner::kSqrtn);
  EXPECT_FLOAT_EQ(items(roots)[0], 8 / std::sqrt(2.F));
}

TEST(EmbeddingLookupSparse, WeighsTheRows) {
  const SparseIds sparse{longs({0, 0, 1}), longs({0, 3, 4}), floats({3, 1, 2})};
  EXPECT_THAT(items(embedding_lookup_sparse(table(), sparse, Combiner::kSum)), ElementsAre(10, 14, 18, 20));
  EXPECT_THAT(items(embedding_lookup_sparse(table(), sparse)), ElementsAre(2.5, 3.5, 9, 10));
  EXPECT_FLOAT_EQ(items(embedding_lookup_sparse(table(), sparse, Combiner::kSqrtn))[0], 10 / std::sqrt(10.F));
}

TEST(EmbeddingLookupSparse, ExamplesWithoutIdsAreZeros) {
  const SparseIds sparse{longs({2}), longs({1}), {}, 4};
  EXPECT_THAT(items(embedding_lookup_sparse(table(), sparse)), ElementsAre(0, 0, 0, 0, 3, 4, 0, 0));
  const SparseIds cancelled{longs({0, 0}), longs({1, 2}), floats({1, -1})};
  EXPECT_THAT(items(embedding_lookup_sparse(table(), cancelled)), ElementsAre(0, 0));
  const SparseIds none{longs({}), longs({}), {}, 1};
  EXPECT_THAT(items(embedding_lookup_sparse(table(), none)), ElementsAre(0, 0));
}

TEST(EmbeddingLookupSparse, GradientsStayFiniteWhereThereIsNothingToDivideBy) {
  const auto variable = table();
  const SparseIds cancelled{longs({0, 0, 1}), longs({1, 2, 0}), floats({1, -1, 1})};
  embedding_lookup_sparse(variable, cancelled).sum().backward();
  EXPECT_THAT(items(variable.variables()[0].value().grad()), ElementsAre(1, 1, 0, 0, 0, 0));
}

TEST(EmbeddingLookupSparse, RefusesWhatDoesNotFitTogether) {
  const auto code = [](const SparseIds& sparse) { return testing::code_of([&] { embedding_lookup_sparse(table(), sparse); }); };
  EXPECT_EQ(code({longs({0}), longs({0, 1})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({longs({-1}), longs({0})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({longs({2}), longs({0}), {}, 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({longs({0}), longs({-1})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({longs({0}), longs({0}), floats({1, 2})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({at::Tensor(), longs({0})}), ErrorCode::kInvalidArgument);
}

TEST(SafeEmbeddingLookupSparse, LeavesOutIdsBelowZeroAndWeightsNotAbove) {
  const SparseIds sparse{longs({0, 0, 1, 2}), longs({0, -1, 4, 1}), floats({1, 1, -1, 1})};
  EXPECT_THAT(items(safe_embedding_lookup_sparse(table(), sparse)), ElementsAre(1, 2, 0, 0, 3, 4));
  EXPECT_THAT(items(safe_embedding_lookup_sparse(table(), sparse, Combiner::kSum)), ElementsAre(1, 2, -9, -10, 3, 4));
}

TEST(SafeEmbeddingLookupSparse, LastExamplesWithoutIdsAreThereToo) {
  const SparseIds sparse{longs({0, 1}), longs({0, -1})};
  EXPECT_THAT(items(safe_embedding_lookup_sparse(table(), sparse)), ElementsAre(1, 2, 0, 0));
}

}  // namespace
}  // namespace lockstep
