#include "lockstep/data/ops/ops.h"

#include <string>

#include "lockstep/data/dataset.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::batches;
using testing::code_of;
using testing::Ints;
using testing::text_of;
using Batches = std::vector<Ints>;

// A vector of x times x.
Dataset growing(std::int64_t count) {
  return Dataset::range(count).map(
      [](at::Tensor x) { return at::full({x.item<std::int64_t>()}, x.item<std::int64_t>(), at::kLong); });
}

Dataset mapped(const Dataset& dataset) {
  return dataset.map([](at::Tensor x) { return x; });
}

TEST(Batch, TheRowPathAndTheElementPathAgree) {
  for (const bool drop : {false, true}) {
    for (std::int64_t size : {1, 2, 4, 7, 9}) {
      const auto rows = Dataset::range(7);
      EXPECT_EQ(batches(rows.batch(size, drop)), batches(mapped(rows).batch(size, drop)));
      const auto matrix = Dataset::from_tensor_slices(at::arange(21).view({7, 3})).skip(1).repeat(2).take(9);
      EXPECT_EQ(batches(matrix.batch(size, drop)), batches(mapped(matrix).batch(size, drop)));
      const auto shuffled = Dataset::range(7).shuffle(3, 5, false);
      EXPECT_EQ(batches(shuffled.batch(size, drop)), batches(mapped(shuffled).batch(size, drop)));
    }
  }
}

TEST(Batch, LastBatchIsSmallerOrDropped) {
  EXPECT_EQ(batches(Dataset::range(5).batch(2)), (Batches{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(batches(Dataset::range(5).batch(2, true)), (Batches{{0, 1}, {2, 3}}));
  EXPECT_EQ(batches(Dataset::range(3).repeat().batch(2).take(3)), (Batches{{0, 1}, {2, 0}, {1, 2}}));
}

TEST(Batch, KeepsDtypesNamesAndDimensions) {
  const auto dataset =
      Dataset::from_tensor_slices({{"image", at::zeros({5, 1, 3}, at::kByte)}, {"label", at::zeros({5}, at::kBool)}}).batch(2);
  const auto batch = *dataset.make_iterator().next();
  EXPECT_EQ(batch.at("image").sizes(), (at::IntArrayRef{2, 1, 3}));
  EXPECT_EQ(batch.at("image").scalar_type(), at::kByte);
  EXPECT_EQ(batch.at("label").scalar_type(), at::kBool);
}

TEST(Batch, OfBatchesAddsADimension) {
  const auto nested = Dataset::range(8).batch(2).batch(2);
  EXPECT_EQ((*nested.make_iterator().next())[0].sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(code_of([] { batches(Dataset::range(15).batch(4).batch(2)); }), ErrorCode::kInvalidArgument);
}

TEST(Batch, RefusesDifferentShapesNamingThem) {
  const auto text = text_of([] { batches(growing(5).batch(2)); });
  EXPECT_NE(text.find("component 0"), std::string::npos) << text;
  EXPECT_NE(text.find("[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("[1]"), std::string::npos) << text;
  EXPECT_EQ(code_of([] { batches(growing(5).batch(2)); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::range(3).batch(0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::range(3).padded_batch(-1); }), ErrorCode::kInvalidArgument);
}

TEST(Batch, RefusesElementsOfDifferentStructure) {
  const auto dataset = Dataset::range(2).map([](at::Tensor x) {
    return x.item<std::int64_t>() == 0 ? Element(x) : Element{x, x};
  });
  EXPECT_EQ(code_of([&] { batches(dataset.batch(2)); }), ErrorCode::kInvalidArgument);
}

// Rows are copied one after the other; these cannot be.
TEST(Batch, StacksWhatIsNotPlain) {
  const auto rows = at::arange(12, at::kFloat).view({3, 4});
  const auto columns = Dataset::range(4).map([&](at::Tensor x) { return rows.select(1, x.item<std::int64_t>()); }).batch(4);
  EXPECT_TRUE(at::equal((*columns.make_iterator().next())[0], rows.t()));

  const auto weight = at::ones({2}).requires_grad_();
  const auto graded = Dataset::range(4)
                          .map([&](at::Tensor x) {
                            const auto value = at::full({2}, x.item<double>());
                            return x.item<std::int64_t>() < 2 ? value : value * weight;
                          })
                          .batch(4);
  const auto batch = (*graded.make_iterator().next())[0];
  EXPECT_TRUE(batch.requires_grad());
  EXPECT_TRUE(at::equal(batch.select(1, 0).detach(), at::arange(4, at::kFloat)));
}

// The last batch has its own memory, and a batch that nobody can fill takes none.
TEST(Batch, TakesTheMemoryOfItsRows) {
  const auto image = [](at::Tensor) { return at::ones({1000}); };
  auto iterator = Dataset::range(5).map(image).batch(4).make_iterator();
  iterator.next();
  EXPECT_EQ((*iterator.next())[0].storage().nbytes(), 4000U);
  const auto all = *Dataset::range(10'000).map(image).batch(std::int64_t{1} << 50).make_iterator().next();
  EXPECT_EQ(all[0].size(0), 10'000);
  EXPECT_EQ(all[0].storage().nbytes(), 40'000'000U);
}

TEST(Batch, StacksByteStrings) {
  const auto dataset = Dataset::range(3).map([](at::Tensor x) {
    return Element(
        std::vector<Component>{{"line", Bytes{{std::string(static_cast<std::size_t>(x.item<std::int64_t>()), 'a')}, {}}}});
  });
  const auto batch = *dataset.batch(3).make_iterator().next();
  EXPECT_EQ(batch.components()[0].bytes(), (Bytes{{"", "a", "aa"}, {3}}));
  const auto parts = dataset.batch(3).rebatch({1, 2}).skip(1).make_iterator().next();
  EXPECT_EQ(parts->components()[0].bytes(), (Bytes{{"a", "aa"}, {2}}));
}

TEST(PaddedBatch, FillsUpWithZeros) {
  EXPECT_EQ(batches(growing(5).padded_batch(3)), (Batches{{0, 0, 1, 0, 2, 2}, {3, 3, 3, 0, 4, 4, 4, 4}}));
  EXPECT_EQ(batches(growing(5).padded_batch(3, true)).size(), 1u);
  EXPECT_EQ(batches(Dataset::range(3).padded_batch(2)), (Batches{{0, 1}, {2}}));
}

TEST(Rebatch, JoinsAcrossBatches) {
  const auto source = Dataset::range(15).batch(4);
  EXPECT_EQ(batches(source.rebatch({6})), (Batches{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}, {12, 13, 14}}));
  EXPECT_EQ(batches(source.take(2).rebatch({3, 0, 1})), (Batches{{0, 1, 2}, {}, {3}, {4, 5, 6}, {}, {7}}));
  EXPECT_EQ(batches(source.rebatch({19}, true)), Batches{});
  EXPECT_EQ(batches(Dataset::range(4).batch(4).rebatch({0, 1})), (Batches{{}, {0}, {}, {1}, {}, {2}, {}, {3}, {}}));
  EXPECT_EQ(batches(Dataset::range(0).batch(4).rebatch({0, 1})), Batches{});
}

TEST(Rebatch, EmptyBatchesKeepTheOtherDimensions) {
  const auto dataset = Dataset::from_tensor_slices(at::zeros({4, 3}, at::kHalf)).batch(4).rebatch({0, 4});
  const auto first = *dataset.make_iterator().next();
  EXPECT_EQ(first[0].sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_EQ(first[0].scalar_type(), at::kHalf);
}

TEST(Rebatch, RefusesWhatHasNoRows) {
  EXPECT_EQ(code_of([] { batches(Dataset::range(4).rebatch({2})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::range(4).batch(2).rebatch({}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::range(4).batch(2).rebatch({0}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Dataset::range(4).batch(2).rebatch({-1}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
