#include "tests/support/split_testing.h"

namespace lockstep::split {
namespace {

using testing::expect_equal;
using testing::home_of;
using testing::parts_of;
using testing::product;
using testing::random;
using Counts = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;

TEST(SplitRules, PointwiseOperationsAreDoneTileByTile) {
  const auto chain = [](const Tensors& t) {
    return at::gelu(at::sigmoid(t[0] * 2 - t[1]).clamp(0.1, 0.9) / (at::exp(t[2]) + 1));
  };
  EXPECT_EQ(expect_equal(chain, {random({4, 6, 2}), random({6, 1}), random({1})}, {2, 3, 1}), 6);
  const auto in_place = [](const Tensors& t) { return (t[0] * 1).add_(t[1]).neg_().add_(3, 2); };
  EXPECT_EQ(expect_equal(in_place, {random({4, 6}), random({6})}, {2, 2}), 4);
  const auto choice = [](const Tensors& t) { return at::where(t[0] > 0, t[0], t[1]).masked_fill(t[0] > 1, 7); };
  EXPECT_EQ(expect_equal(choice, {random({4, 6}), random({4, 1})}, {4, 1}), 4);
}

TEST(SplitRules, PointwiseOperationsBroadcastTheSplitOne) {
  const auto add = [](const Tensors& t) { return t[0] + t[1]; };
  EXPECT_EQ(expect_equal(add, {random({4}), random({3, 2, 4})}, {2}), 2);
  EXPECT_EQ(expect_equal(add, {random({4, 1}), random({3, 4, 5})}, {4, 1}), 4);
}

TEST(SplitRules, SumsAndMeansOverCutDimensions) {
  const auto x = random({4, 6, 2});
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].sum(); }, {x}, {2, 3, 1}), 1);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].mean(); }, {x}, {2, 3, 1}), 1);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].mean(at::IntArrayRef{1}); }, {x}, {2, 3, 1}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].sum(at::IntArrayRef{-1}); }, {x}, {2, 3, 1}), 6);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].sum(at::IntArrayRef{0, 2}, true); }, {x}, {2, 3, 1}), 3);
}

TEST(SplitRules, OtherReductionsWhereTheDimensionIsNotCut) {
  const auto x = random({4, 6});
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::log_softmax(t[0], 1); }, {x}, {4, 1}), 4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::softmax(t[0], 1); }, {x}, {1, 2}), 1);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::amax(t[0], 1); }, {x}, {2, 1}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return std::get<0>(at::max(t[0], 1)); }, {x}, {2, 1}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::var(t[0], at::IntArrayRef{1}, true); }, {x}, {2, 1}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::max(t[0]); }, {x}, {2, 2}), 1);
}

TEST(SplitRules, ProductsWithASplitFactor) {
  const auto matmul = [](const Tensors& t) { return at::matmul(t[0], t[1]); };
  const auto other = [](const Tensors& t) { return at::matmul(t[1], t[0]); };
  EXPECT_EQ(expect_equal(matmul, {random({4, 6}), random({6, 3})}, {2, 1}), 2);
  EXPECT_EQ(expect_equal(matmul, {random({4, 6}), random({6, 3})}, {2, 3}), 2);
  EXPECT_EQ(expect_equal(matmul, {random({4, 6}), random({6, 3})}, {1, 3}), 1);
  EXPECT_EQ(expect_equal(matmul, {random({2, 4, 6}), random({2, 6, 3})}, {2, 2, 1}), 4);
  EXPECT_EQ(expect_equal(other, {random({6, 4}), random({3, 6})}, {1, 2}), 2);
  EXPECT_EQ(expect_equal(other, {random({6, 4}), random({3, 6})}, {2, 2}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::linear(t[0], t[1], t[2]); },
                         {random({4, 6}), random({3, 6}), random({3})}, {4, 1}),
            4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::linear(t[1], t[0], t[2]); },
                         {random({4, 6}), random({3, 6}), random({4})}, {2, 1}),
            2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::addmm(t[2], t[0], t[1]); },
                         {random({4, 6}), random({6, 3}), random({3})}, {2, 2}),
            2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::matmul(t[0], t[0].t()); }, {random({4, 6})}, {2, 3}), 2);
}

TEST(SplitRules, ConvolutionsFetchTheRowsOfTheirNeighbours) {
  const auto x = random({2, 3, 8, 10});
  const auto w = random({4, 3, 3, 3});
  const auto b = random({4});
  const auto same = [](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], 1, 1); };
  EXPECT_EQ(expect_equal(same, {x, w, b}, {1, 1, 4, 1}), 4);
  EXPECT_EQ(expect_equal(same, {x, w, b}, {2, 1, 2, 2}), 8);
  EXPECT_EQ(expect_equal(same, {x, w, b}, {1, 3, 2, 1}), 6);
  EXPECT_EQ(expect_equal(
                [](const Tensors& t) {
                  return at::conv2d(t[0], t[1], t[2], {2, 3}, {1, 0}, {1, 2});
                },
                {x, w, b}, {1, 1, 2, 2}),
            4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], 1, "same"); }, {x, w, b}, {1, 1, 1, 5}), 5);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::conv2d(t[0], t[1], {}, 1, 1, 1, 3); }, {x, random({6, 1, 3, 3})},
                         {1, 1, 4, 1}),
            4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::conv1d(t[0], t[1], t[2], 2, 4); },
                         {random({3, 12}), random({4, 3, 5}), b}, {1, 3}),
            3);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::conv3d(t[0], t[1], {}, 1, 1); },
                         {random({1, 2, 4, 4, 4}), random({2, 2, 3, 3, 3})}, {1, 1, 2, 2, 1}),
            4);
  // Fewer outputs than parts.
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], 1, at::IntArrayRef{0}, 3); }, {x, w, b},
                         {1, 1, 4, 1}),
            1);
}

TEST(SplitRules, PoolingFetchesTheRowsOfItsNeighbours) {
  const auto x = random({2, 4, 8, 10});
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::max_pool2d(t[0], 2); }, {x}, {1, 2, 4, 1}), 8);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::max_pool2d(t[0], 3, 2, 1); }, {x}, {1, 1, 2, 2}), 4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::avg_pool2d(t[0], 3, 1, 1); }, {x}, {1, 1, 2, 2}), 4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::avg_pool2d(t[0], 3, 1, 1, false, false); }, {x}, {1, 1, 2, 2}), 1);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return at::max_pool2d(t[0], 3, 3, 0, 1, true); }, {x}, {1, 1, 2, 2}), 1);
}

TEST(SplitRules, ShapesWhereTheCutDimensionsStay) {
  const auto x = random({4, 6, 2});
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].transpose(0, 1) * 2; }, {x}, {2, 3, 1}), 6);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].permute({2, 0, 1}) * 2; }, {x}, {2, 3, 2}), 12);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].flatten(1) * 2; }, {x}, {2, 1, 1}), 2);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].view({4, -1}) * 2; }, {x}, {4, 1, 1}), 4);
  EXPECT_EQ(expect_equal([](const Tensors& t) { return t[0].flatten() * 2; }, {x}, {4, 1, 1}), 1);
}

TEST(SplitRules, NormsSeeAllTiles) {
  const auto x = random({4, 3, 6, 4});
  const auto train = [](const Tensors& t) { return at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false); };
  EXPECT_EQ(expect_equal(train, {x, random({3}), random({3})}, {2, 1, 3, 1}, 1e-9), 6);
  EXPECT_EQ(expect_equal(
                [](const Tensors& t) {
                  return at::layer_norm(t[0], {6, 4}, t[1], t[2]);
                },
                {x, random({6, 4}), random({6, 4})}, {2, 1, 1, 1}),
            2);
  const auto evaluate = [](const Tensors& t) {
    return at::batch_norm(t[0], t[1], {}, at::full({3}, 0.5, at::kDouble), at::full({3}, 2.0, at::kDouble), false, 0.1, 1e-5,
                          false);
  };
  EXPECT_EQ(expect_equal(evaluate, {x, random({3})}, {2, 1, 3, 1}), 6);
}

TEST(SplitRules, BatchNormKeepsTheSameStatistics) {
  const auto x = random({4, 3, 6});
  Tensors kept;
  for (const auto& given : {x, split_to(x, home_of(4), {2, 1, 2})}) {
    auto mean = at::zeros({3}, at::kDouble);
    auto variance = at::ones({3}, at::kDouble);
    at::batch_norm(given, {}, {}, mean, variance, true, 0.1, 1e-5, false);
    kept.push_back(at::stack({mean, variance}));
  }
  EXPECT_TRUE(at::allclose(kept[0], kept[1], 1e-12, 1e-12));
}

TEST(SplitRules, MeansOfHalfPrecisionFit) {
  const auto x = at::full({8, 1024}, 100.0).to(at::kHalf);
  EXPECT_EQ(split_to(x, home_of(4), {4, 1}).mean().item<float>(), 100);
}

TEST(SplitRules, LeaveMistakesToLibTorch) {
  const auto home = home_of(2);
  const auto rows = split_to(at::ones({4, 6}), home, {2, 1});
  const auto volume = split_to(at::ones({1, 2, 4, 4, 4}), home, {1, 1, 2, 1, 1});
  EXPECT_THROW(at::conv3d(volume, at::ones({2, 2, 3, 3, 3}), {}, 1, at::IntArrayRef{1, 1}), c10::Error);
  EXPECT_THROW(at::max_pool3d(volume, {2, 2}), c10::Error);
  EXPECT_THROW(at::mm(at::ones({2, 4, 6}), rows.t()), c10::Error);
  EXPECT_EQ(at::linear(rows, at::ones({2, 6}), at::ones({4, 2})).sizes(), (Counts{4, 2}));
}

TEST(SplitRules, DropoutDrawsTheSameNumbers) {
  const auto x = at::ones({4, 6});
  at::manual_seed(3);
  const auto expected = at::dropout(x, 0.5, true);
  at::manual_seed(3);
  const auto got = at::dropout(split_to(x, home_of(4), {2, 2}), 0.5, true);
  EXPECT_EQ(parts_of(got), 4);
  EXPECT_TRUE(at::equal(whole(got), expected));
}

// 200 shapes and splits: value and gradients of a small network of convolutions, and of products.
TEST(SplitRules, RandomShapesAndSplits) {
  std::mt19937 draw(20);
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(draw);
  };
  int cut = 0;
  for (int round = 0; round < 200; ++round) {
    Counts counts, sizes;
    for (int d = 0; d < 4; ++d) {
      counts.push_back(from(1, 2) * (d == 2 ? from(1, 2) : 1));
      sizes.push_back(counts.back() * from(1, d < 2 ? 2 : 4));
    }
    const auto kernel = from(1, 3);
    const auto stride = from(1, 2);
    const auto channels = from(1, 4);
    const auto network = [&](const Tensors& t) {
      const auto y = at::tanh(at::conv2d(t[0], t[1], t[2], stride, kernel / 2));
      const auto z = at::matmul(y.mean(at::IntArrayRef{2}).transpose(1, 2), t[3]);
      return at::log_softmax(z, 2) * z.sum(at::IntArrayRef{0});
    };
    SCOPED_TRACE(::testing::Message() << "round " << round << ", sizes " << at::IntArrayRef(sizes) << ", counts "
                                      << at::IntArrayRef(counts));
    const Tensors given = {random(sizes), random({channels, sizes[1], kernel, kernel}), random({channels}),
                           random({channels, 3})};
    cut += expect_equal(network, given, counts) > 1 ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(cut, 50);
}

}  // namespace
}  // namespace lockstep::split
