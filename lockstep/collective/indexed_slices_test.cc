#include "lockstep/collective/indexed_slices.h"

#include <ATen/ATen.h>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ThrowsCode;

at::Tensor rows(std::initializer_list<float> values, std::int64_t width = 2) {
  return at::tensor(std::vector<float>(values)).view({-1, width});
}

at::Tensor ids(std::initializer_list<std::int64_t> values, at::ScalarType dtype = at::kLong) {
  return at::tensor(std::vector<std::int64_t>(values), at::kLong).to(dtype);
}

IndexedSlices two_rows() { return {rows({1, 2, 3, 4}), ids({2, 0}), {4, 2}}; }

TEST(IndexedSlices, FittingOnesAreValid) {
  EXPECT_NO_THROW(two_rows().validate());
  EXPECT_NO_THROW((IndexedSlices{rows({1, 2}), ids({1}, at::kInt), {}}.validate()));
  EXPECT_NO_THROW((IndexedSlices{at::empty({0, 2}), ids({}), {4, 2}}.validate()));
  EXPECT_NO_THROW((IndexedSlices{at::ones({3}), ids({0, 1, 0}), {5}}.validate()));
}

TEST(IndexedSlices, WhatDoesNotFitIsNamed) {
  const auto values = rows({1, 2, 3, 4});
  EXPECT_THAT(
      [&] {
        (IndexedSlices{values, at::Tensor()}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "must both be given"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{at::Tensor(), ids({1})}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "must both be given"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{values, ids({1})}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "[2, 2]", "[1]", "one index for each row"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{values, ids({1, 2}).view({1, 2})}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "one index for each row"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{at::scalar_tensor(1), ids({1})}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "one index for each row"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{values, at::ones({2})}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "int32 or int64"));
  EXPECT_THAT(
      [&] {
        (IndexedSlices{values, ids({0, 1}), {4}}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "dense_shape has 1 dimensions"));
}

TEST(IndexedSlices, RowsMustBeAsLongAsThoseOfTheWholeTensor) {
  EXPECT_THAT(
      [] {
        (IndexedSlices{rows({1, 2}), ids({0}), {4, 3}}.validate());
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "[1, 2]", "[4, 3]"));
}

TEST(IndexedSlices, DenseHoldsTheRowsAndZeroElsewhere) {
  EXPECT_TRUE(at::equal(to_dense(two_rows()), rows({3, 4, 0, 0, 1, 2, 0, 0})));
  const IndexedSlices none{at::empty({0, 2}), ids({}), {2, 2}};
  EXPECT_TRUE(at::equal(to_dense(none), at::zeros({2, 2})));
}

TEST(IndexedSlices, RepeatedRowsAddUp) {
  for (const auto dtype : {at::kLong, at::kInt}) {
    const IndexedSlices slices{rows({1, 2, 3, 4, 5, 6}), ids({1, 3, 1}, dtype), {5, 2}};
    EXPECT_TRUE(at::equal(to_dense(slices), rows({0, 0, 6, 8, 0, 0, 3, 4, 0, 0}))) << dtype;
  }
}

TEST(IndexedSlices, DenseKeepsTheDtypeAndFurtherDimensions) {
  const IndexedSlices slices{at::ones({2, 3, 4}, at::kDouble), ids({0, 0}), {2, 3, 4}};
  const auto dense = to_dense(slices);
  EXPECT_EQ(dense.scalar_type(), at::kDouble);
  EXPECT_EQ(dense[0].sum().item<double>(), 24);
  EXPECT_EQ(dense[1].sum().item<double>(), 0);
}

TEST(IndexedSlices, DenseNeedsAShapeAndIndicesInsideIt) {
  EXPECT_THAT([] { to_dense({rows({1, 2}), ids({0})}); }, ThrowsCode(ErrorCode::kInvalidArgument, "dense_shape is not known"));
  for (const std::int64_t index : {-1, 4})
    EXPECT_THAT(
        [&] {
          to_dense({rows({1, 2}), ids({index}), {4, 2}});
        },
        ThrowsCode(ErrorCode::kInvalidArgument, str("index ", index), "[0, 4)"));
  EXPECT_THAT([] { to_dense({rows({1, 2}), at::ones({1}), {4, 2}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "int32"));
}

TEST(IndexedSlices, RequireIndicesBelowNamesTheOneThatIsOutside) {
  const IndexedSlices slices{rows({1, 2, 3, 4}), ids({7, 2}, at::kInt)};
  EXPECT_NO_THROW(slices.require_indices_below(8, "scatter_add"));
  EXPECT_THAT([&] { slices.require_indices_below(7, "scatter_add"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "scatter_add: index 7", "[0, 7)"));
  EXPECT_NO_THROW((IndexedSlices{at::empty({0, 2}), ids({})}.require_indices_below(0, "scatter_add")));
}

TEST(IndexedSlices, BecomeASparseTensorAndBack) {
  for (const auto dtype : {at::kLong, at::kInt}) {
    const IndexedSlices slices{rows({1, 2, 3, 4, 5, 6}), ids({1, 3, 1}, dtype), {5, 2}};
    const auto sparse = to_sparse_tensor(slices);
    EXPECT_EQ(sparse.layout(), at::kSparse);
    EXPECT_FALSE(sparse.is_coalesced());
    EXPECT_TRUE(at::equal(sparse.to_dense(), to_dense(slices)));
    const auto back = from_sparse_tensor(sparse);
    EXPECT_TRUE(at::equal(back.values, slices.values));
    EXPECT_TRUE(at::equal(back.indices, slices.indices.to(at::kLong)));
    EXPECT_THAT(back.dense_shape, ElementsAre(5, 2));
  }
}

TEST(IndexedSlices, ASparseTensorOfOneRowOrNoneHasAListOfIndices) {
  EXPECT_THAT(from_sparse_tensor(to_sparse_tensor({rows({1, 2}), ids({3}), {5, 2}})).indices.sizes(), ElementsAre(1));
  EXPECT_THAT(from_sparse_tensor(to_sparse_tensor({at::empty({0, 2}), ids({}), {5, 2}})).indices.sizes(), ElementsAre(0));
}

TEST(IndexedSlices, ASparseTensorNeedsAShape) {
  EXPECT_THAT(
      [] {
        to_sparse_tensor({rows({1, 2}), ids({0})});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "dense_shape is not known"));
  EXPECT_THAT([] { to_sparse_tensor({rows({1, 2}), ids({0, 1}), {5, 2}}); }, ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(IndexedSlices, OnlyRowsMayBeSparse) {
  const auto everywhere = at::eye(3).to_sparse();
  EXPECT_THAT([&] { from_sparse_tensor(everywhere); },
              ThrowsCode(ErrorCode::kInvalidArgument, "first dimension only", "2 sparse dimensions"));
}

TEST(IndexedSlices, ConcatenatingKeepsAllRowsInOrder) {
  const IndexedSlices one{rows({9, 9}), ids({2}), {4, 2}};
  const auto all = concatenate({two_rows(), one, {at::empty({0, 2}), ids({}), {4, 2}}});
  EXPECT_TRUE(at::equal(all.values, rows({1, 2, 3, 4, 9, 9})));
  EXPECT_TRUE(at::equal(all.indices, ids({2, 0, 2})));
  EXPECT_THAT(all.dense_shape, ElementsAre(4, 2));
  EXPECT_THAT(concatenate({{rows({1, 2}), ids({0})}}).dense_shape, IsEmpty());
}

TEST(PrefetchRows, ChangesNothingWhateverItIsGiven) {
  const auto table = at::arange(4000, at::kFloat).view({10, 400});
  const auto before = table.clone();
  const auto columns = table.t();
  for (const auto& indices :
       {ids({0, 9, 9}), ids({}), ids({1, 2}, at::kInt), ids({0, 1, 2, 3}).slice(0, 0, 4, 2), ids({-5, 1 << 20})})
    for (const auto& given : {table, columns, table.view({-1}), at::scalar_tensor(1), at::empty({0, 3}), table.to(at::kHalf)})
      prefetch_rows(given, indices);
  EXPECT_TRUE(at::equal(table, before));
}

}  // namespace
}  // namespace lockstep
