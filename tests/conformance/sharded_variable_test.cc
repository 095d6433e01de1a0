#include <type_traits>

#include "tests/conformance/testing.h"
#include "tests/support/scratch_folder.h"

// Partitioners, and variables that are divided over shards.

namespace lockstep::testing {
namespace {

using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;

ShardedVariable sharded(const std::vector<at::Tensor>& shards) {
  std::vector<Variable> variables;
  for (const auto& shard : shards) variables.emplace_back(shard);
  return ShardedVariable(std::move(variables), "w");
}

// A row of each number, twice.
at::Tensor pairs(const Floats& numbers) { return vec(numbers).unsqueeze(1).expand({-1, 2}); }

Floats shard(const ShardedVariable& variable, std::size_t number) { return floats(variable.variables().at(number).value()); }

TEST(Partitioning, FixedShardsGivesItsNumber) { EXPECT_EQ(FixedShardsPartitioner(2)({10, 3}, at::kFloat), (Ints{2, 1})); }

TEST(Partitioning, MinSizeGivesAsManyAsThereAreBytesFor) {
  EXPECT_EQ(MinSizePartitioner({.min_shard_bytes = 4, .max_shards = 2})({6, 1}, at::kFloat), (Ints{2, 1}));
  EXPECT_EQ(MinSizePartitioner({.min_shard_bytes = 4, .max_shards = 10})({6, 1}, at::kFloat), (Ints{6, 1}));
}

TEST(Sharded, HasTheWholesShapeAndItsName) {
  const ShardedVariable variable({Variable(vec({0})), Variable(vec({1}))}, "s");
  EXPECT_EQ(variable.sizes(), (Ints{2}));
  EXPECT_EQ(variable.scalar_type(), at::kFloat);
  EXPECT_EQ(variable.name(), "s");
  EXPECT_EQ(variable.variables().size(), 2);
  EXPECT_THAT(floats(variable.value()), ElementsAre(0, 1));
}

class ShardedWrites : public ::testing::Test {
 protected:
  ShardedVariable variable = sharded({pairs({0}), pairs({1, 2}), pairs({3})});
};

TEST_F(ShardedWrites, AssignGivesEachShardItsRows) {
  variable.assign(pairs({4, 5, 6, 7}));
  EXPECT_THAT(shard(variable, 0), ElementsAre(4, 4));
  EXPECT_THAT(shard(variable, 1), ElementsAre(5, 5, 6, 6));
  EXPECT_THAT(shard(variable, 2), ElementsAre(7, 7));
}

TEST_F(ShardedWrites, AssignAddAndAssignSubToo) {
  variable.assign_sub(pairs({0, 1, 1, 3}));
  EXPECT_THAT(shard(variable, 0), ElementsAre(0, 0));
  EXPECT_THAT(shard(variable, 1), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(shard(variable, 2), ElementsAre(0, 0));
  variable.assign_add(pairs({1, 1, 2, 2}));
  EXPECT_THAT(shard(variable, 1), ElementsAre(1, 1, 3, 3));
}

TEST_F(ShardedWrites, BecomesATensorInTheOrderOfTheShards) { EXPECT_TRUE(at::Tensor(variable).equal(pairs({0, 1, 2, 3}))); }

TEST_F(ShardedWrites, AFunctionTakesItAndWritesItsShards) {
  const auto clear = [](ShardedVariable given) { return given.assign(at::zeros({2})); };
  auto first = sharded({vec({1}), vec({2})});
  EXPECT_THAT(floats(clear(first).value()), ElementsAre(0, 0));
  EXPECT_THAT(floats(first.value()), ElementsAre(0, 0));
}

TEST(ShardedScatter, AnUnevenPartitionIsWrittenLikeAPlainVariable) {
  auto variable = sharded({at::zeros({11, 1}), at::zeros({11, 1}), at::zeros({10, 1})});
  Variable plain(at::zeros({32, 1}));
  const IndexedSlices rows{at::arange(6, at::kFloat).unsqueeze(1), ints_vec({0, 10, 11, 12, 30, 31})};
  variable.scatter_add(rows);
  const auto once = floats(variable.value());
  EXPECT_EQ(once[10], 1);
  EXPECT_EQ(once[11], 2);
  EXPECT_EQ(once[12], 3);
  EXPECT_EQ(once[30], 4);
  EXPECT_EQ(once[31], 5);
  variable.scatter_add(rows);
  EXPECT_TRUE(variable.value().equal(plain.scatter_add(rows).scatter_add(rows).value()));
}

class ShardedFiles : public ::testing::Test {
 protected:
  static ShardedVariable four(const Floats& values) {
    return sharded({vec({values[0]}), vec({values[1]}), vec({values[2]}), vec({values[3]})});
  }
  // The file of [0], [1], [2], [3].
  void write() { Checkpoint().track("w", four({0, 1, 2, 3})).write(folder / "c"); }

  const ScratchFolder folder;
};

TEST_F(ShardedFiles, ComeBackIntoTheSameShards) {
  auto variable = four({0, 1, 2, 3});
  Checkpoint checkpoint;
  checkpoint.track("w", variable).write(folder / "c");
  Variable(variable.variables()[0]).assign(vec({4}));
  checkpoint.read(folder / "c");
  EXPECT_THAT(shard(variable, 0), ElementsAre(0));
  EXPECT_THAT(floats(variable.value()), ElementsAre(0, 1, 2, 3));
}

TEST_F(ShardedFiles, ComeBackIntoAnotherNumberOfShards) {
  write();
  const auto two = sharded({vec({9, 9}), vec({9, 9})});
  Checkpoint().track("w", two).read(folder / "c");
  EXPECT_THAT(shard(two, 0), ElementsAre(0, 1));
  EXPECT_THAT(shard(two, 1), ElementsAre(2, 3));
  const Variable one(vec({9, 9, 9, 9}));
  Checkpoint().track("w", one).read(folder / "c");
  EXPECT_THAT(floats(one), ElementsAre(0, 1, 2, 3));
}

TEST_F(ShardedFiles, OfAWholeVariableComeBackInShards) {
  Checkpoint().track("w", Variable(vec({0, 1, 2, 3}))).write(folder / "c");
  const auto variable = four({9, 9, 9, 9});
  Checkpoint().track("w", variable).read(folder / "c");
  EXPECT_THAT(shard(variable, 3), ElementsAre(3));
  EXPECT_THAT(floats(variable.value()), ElementsAre(0, 1, 2, 3));
}

TEST_F(ShardedFiles, AreRefusedByOtherShapes) {
  write();
  const auto five = sharded({vec({9, 9}), vec({9, 9, 9})});
  EXPECT_EQ(code_of([&] { Checkpoint().track("w", five).read(folder / "c"); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(floats(five.value()), ElementsAre(9, 9, 9, 9, 9));
}

class ShardedEmbedding : public ::testing::Test {
 protected:
  const ShardedVariable table = sharded({vec({1, 2, 3, 4, 5, 6}).reshape({3, 2}), vec({7, 8, 9, 10}).reshape({2, 2})});
};

TEST_F(ShardedEmbedding, SparseIdsAreCombinedForEachExample) {
  const SparseIds sparse{ints_vec({0, 0, 1, 2}), ints_vec({0, 3, 4, 1})};
  EXPECT_THAT(floats(embedding_lookup_sparse(table, sparse, Combiner::kMean)), ElementsAre(4, 5, 9, 10, 3, 4));
}

TEST_F(ShardedEmbedding, TheSafeFormLeavesOutWhatIsNotValid) {
  const SparseIds sparse{ints_vec({0, 0, 1, 2}), ints_vec({0, -1, 4, 1}), vec({1, 1, -1, 1})};
  EXPECT_THAT(floats(safe_embedding_lookup_sparse(table, sparse)), ElementsAre(1, 2, 0, 0, 3, 4));
}

class ShardedSlices : public ::testing::Test {
 protected:
  // [[1, 2], [3, 4], ... [15, 16]] in shards of 3, 2 and 3 rows.
  const at::Tensor whole = at::arange(1, 17, at::kFloat).reshape({8, 2});
  const ShardedVariable variable = sharded({whole.slice(0, 0, 3), whole.slice(0, 3, 5), whole.slice(0, 5, 8)});

  // The rows, by their first items.
  Floats rows(const Slice& slice) const {
    const auto got = variable.index({slice});
    EXPECT_TRUE((got.select(1, 1) - got.select(1, 0) == 1).all().item<bool>());
    return floats(got.select(1, 0));
  }
};

TEST_F(ShardedSlices, PositionsBeyondTheEndsAreClamped) { EXPECT_THAT(rows(Slice(-10, 2)), ElementsAre(1, 3)); }

TEST_F(ShardedSlices, OpenEndsReachTheLastRow) {
  EXPECT_THAT(rows(Slice(5, None)), ElementsAre(11, 13, 15));
  EXPECT_THAT(rows(Slice(5, -1)), ElementsAre(11, 13));
}

TEST_F(ShardedSlices, StepsGoOverShards) {
  EXPECT_THAT(rows(Slice(None, None, 5)), ElementsAre(1, 11));
  EXPECT_THAT(rows(Slice(1, None, 6)), ElementsAre(3, 15));
  EXPECT_THAT(rows(Slice(1, 5, 6)), ElementsAre(3));
  EXPECT_THAT(rows(Slice(1, None, 7)), ElementsAre(3));
}

TEST_F(ShardedSlices, NegativeStepsGoBack) {
  EXPECT_THAT(rows(Slice(None, None, -1)), ElementsAre(15, 13, 11, 9, 7, 5, 3, 1));
  EXPECT_THAT(rows(Slice(None, None, -5)), ElementsAre(15, 5));
  EXPECT_THAT(rows(Slice(2, None, -1)), ElementsAre(5, 3, 1));
  EXPECT_THAT(rows(Slice(2, -8, -1)), ElementsAre(5, 3));
  EXPECT_THAT(rows(Slice(2, -10, -1)), ElementsAre(5, 3, 1));
}

TEST_F(ShardedSlices, NegativeStepsGoBackOverShards) {
  EXPECT_THAT(rows(Slice(6, None, -6)), ElementsAre(13, 1));
  EXPECT_THAT(rows(Slice(6, 5, -6)), ElementsAre(13));
  EXPECT_THAT(rows(Slice(6, None, -7)), ElementsAre(13));
  EXPECT_THAT(rows(Slice(-1, -3, -1)), ElementsAre(15, 13));
}

TEST_F(ShardedSlices, WithoutRowsTheOtherDimensionsStay) {
  for (const auto& slice : {Slice(0, 0), Slice(5, 3), Slice(3, 5, -1), Slice(-1, 0), Slice(2, -1, -1)})
    EXPECT_EQ(variable.index({slice}).sizes(), (Ints{0, 2})) << slice;
}

TEST_F(ShardedSlices, OtherDimensionsAreIndexedToo) {
  EXPECT_THAT(floats(variable.index({Slice(), 0})), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  EXPECT_EQ(variable.index({Slice(), Slice(0, 1)}).sizes(), (Ints{8, 1}));
  EXPECT_TRUE(variable.index({Ellipsis}).equal(whole));
  EXPECT_TRUE(variable.index({Ellipsis, 0}).equal(whole.select(1, 0)));
  EXPECT_THAT(floats(variable.index({Slice(0, 1), Ellipsis})), ElementsAre(1, 2));
  EXPECT_EQ(variable.index({None, Ellipsis}).sizes(), (Ints{1, 8, 2}));
}

TEST_F(ShardedSlices, ANumberIsARowAndTwoAreAnItem) {
  EXPECT_EQ(variable.index({2, 1}).item<double>(), 6);
  for (std::int64_t row = 0; row < 8; ++row) EXPECT_TRUE(variable.index({row}).equal(whole[row])) << row;
}

TEST_F(ShardedSlices, ARowThatIsNotThereIsOutOfRange) {
  EXPECT_EQ(code_of([&] { variable.index({100}); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(code_of([&] { variable.index({-100}); }), ErrorCode::kOutOfRange);
}

TEST_F(ShardedSlices, ATensorIsNoIndexUnlessItIsAMask) {
  EXPECT_EQ(code_of([&] { variable.index({ints_vec({1})}); }), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(variable.index({whole.select(1, 0) > 8}).equal(whole.slice(0, 4, 8)));
  static_assert(!std::is_constructible_v<Slice, at::Tensor>);
}

TEST(ShardedOperators, WorkThroughTheTensor) {
  const auto a = sharded({vec({1}), vec({2})});
  const auto b = sharded({vec({1}), vec({2})});
  EXPECT_THAT(floats(a == b), ElementsAre(1, 1));
  EXPECT_THAT(floats(a + b), ElementsAre(2, 4));
}

}  // namespace
}  // namespace lockstep::testing
