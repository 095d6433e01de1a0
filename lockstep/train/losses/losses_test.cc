#include "lockstep/train/losses/losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/names.h"

// Values are compared with Keras's in tests/oracle (losses.json); here is what it does not say.

namespace lockstep {
namespace {

template <typename F>
std::string refused(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Loss, IsKnownByKerasNames) {
  EXPECT_EQ(Loss("mse").name(), "mean_squared_error");
  EXPECT_EQ(Loss("SparseCategoricalCrossentropy").name(), "sparse_categorical_crossentropy");
  const auto y = at::rand({4, 3});
  for (const auto& name : losses::loss_names()) {
    const auto labels = Loss(name).name().find("sparse") == 0 || Loss(name).name().find("generalized") != std::string::npos
                            ? at::zeros({4}, at::kLong)
                            : at::rand({4, 3});
    EXPECT_EQ(Loss(name)(labels, y).dim(), 0) << name;
  }
  EXPECT_TRUE(contains(refused([] { Loss("mean_squard_error"); }), "did you mean 'mean_squared_error'?"));
}

TEST(Loss, NamesTheLabelThatIsNoClass) {
  const auto scores = at::zeros({3, 10});
  const auto labels = at::tensor({3, 12, 1});
  const auto text = refused([&] { sparse_categorical_crossentropy({.from_logits = true})(labels, scores); });
  EXPECT_TRUE(contains(text, "row 1 is 12")) << text;
  EXPECT_TRUE(contains(text, "10 classes, 0 to 9")) << text;
  // LibTorch's own loss takes -100 for "does not count".
  EXPECT_TRUE(contains(refused([&] { sparse_categorical_crossentropy()(at::tensor({0, 1, -100}), scores); }), "-100"));
  EXPECT_EQ(sparse_categorical_crossentropy({.ignore_class = -100})(at::tensor({-100, -100, -100}), scores).item<double>(), 0);
}

TEST(Loss, ShapesThatDoNotFitAreNamed) {
  EXPECT_TRUE(contains(refused([] { mean_squared_error()(at::zeros({3, 2}), at::zeros({4, 2})); }), "[3, 2]"));
  EXPECT_TRUE(contains(refused([] { binary_crossentropy()(at::zeros({3, 2}), at::zeros({3, 1})); }), "must be equal"));
  EXPECT_TRUE(contains(refused([] {
                         mean_squared_error()(at::zeros({3, 2}), at::zeros({3, 2}), at::ones({2}));
                       }),
                       "sample_weight"));
  EXPECT_TRUE(contains(refused([] {
                         sparse_categorical_crossentropy()(at::zeros({3, 5}), at::zeros({3, 2}));
                       }),
                       "class number"));
  refused([] { cosine_similarity({.axis = 2})(at::zeros({3, 2}), at::zeros({3, 2})); });
  refused([] { huber({.delta = 0}); });
  refused([] { binary_crossentropy({.label_smoothing = 2}); });
}

TEST(Loss, ClassesMayStandInAnyAxis) {
  const auto scores = at::randn({2, 5, 3, 4});  // LibTorch's images: batch, classes, height, width
  const auto labels = at::randint(5, {2, 3, 4});
  const auto here = sparse_categorical_crossentropy({.from_logits = true, .axis = 1})(labels, scores);
  const auto last = sparse_categorical_crossentropy({.from_logits = true})(labels, scores.movedim(1, -1));
  EXPECT_TRUE(here.equal(last));
  EXPECT_TRUE(at::allclose(here, at::cross_entropy_loss(scores, labels)));
}

TEST(Loss, ComputesInTheTypeOfThePredictions) {
  const auto y = at::rand({4, 2}, at::kDouble);
  EXPECT_EQ(mean_squared_error()(at::zeros({4, 2}), y).scalar_type(), at::kDouble);
  EXPECT_EQ(mean_squared_error()(at::zeros({4, 2}), y.to(at::kBFloat16)).scalar_type(), at::kFloat);
  EXPECT_EQ(mean_squared_error()(at::zeros({4, 2}), at::ones({4, 2}, at::kLong)).item<double>(), 1);
}

TEST(Loss, ABatchOfNoRowsHasTheLossZero) {
  for (const auto* name : {"mse", "bce", "kld", "categorical_crossentropy"}) {
    const auto y = at::rand({0, 3}).requires_grad_();
    const auto loss = Loss(name)(at::zeros({0, 3}), y);
    EXPECT_EQ(loss.dim(), 0) << name;
    EXPECT_EQ(loss.item<double>(), 0) << name;
    loss.backward();
    EXPECT_EQ(y.grad().numel(), 0) << name;
  }
  EXPECT_EQ(sparse_categorical_crossentropy()(at::zeros({0}, at::kLong), at::zeros({0, 3})).item<double>(), 0);
}

TEST(Loss, TotalsOfPartsMakeTheLossOfTheWhole) {
  const auto y_pred = at::rand({7, 5}, at::kDouble);
  const auto y_true = at::tensor({0, 1, 4, -1, 2, -1, 3});
  const auto weights = at::rand({7}, at::kDouble);
  for (const auto reduction : {Reduction::kSumOverBatchSize, Reduction::kSum, Reduction::kMeanWithSampleWeight}) {
    const auto loss = sparse_categorical_crossentropy({.ignore_class = -1, .reduction = reduction});
    double sum = 0;
    double divisor = 0;
    for (const auto& [begin, end] : {std::pair(0, 3), std::pair(3, 4), std::pair(4, 7)}) {
      const auto part = loss.total(y_true.slice(0, begin, end), y_pred.slice(0, begin, end), weights.slice(0, begin, end));
      sum += part.sum.item<double>();
      divisor += part.divisor.item<double>();
    }
    if (reduction == Reduction::kSum) divisor = 1;
    EXPECT_NEAR(sum / divisor, loss(y_true, y_pred, weights).item<double>(), 1e-12) << str(reduction);
  }
}

TEST(Loss, GradientsAreThoseOfTheFormula) {
  const auto labels = at::tensor({2, 0}, at::kLong);
  auto scores = at::randn({2, 3}, at::kDouble).requires_grad_();
  sparse_categorical_crossentropy({.from_logits = true})(labels, scores).backward();
  const auto wanted = (at::softmax(scores.detach(), -1) - at::one_hot(labels, 3).to(at::kDouble)) / 2;
  EXPECT_TRUE(at::allclose(scores.grad(), wanted));
  auto y = at::zeros({1, 2}, at::kDouble).requires_grad_();  // no length: no direction, and no NaN
  cosine_similarity()(at::ones({1, 2}), y).backward();
  EXPECT_FALSE(y.grad().isnan().any().item<bool>());
}

TEST(Loss, OfOnesOwnIsReducedLikeTheOthers) {
  const Loss cubed("cubed",
                   [](const at::Tensor& y_true, const at::Tensor& y_pred) { return (y_pred - y_true).pow(3).sum(-1); });
  EXPECT_EQ(cubed.name(), "cubed");
  const auto y = at::full({2, 2}, 2.0);
  EXPECT_EQ(cubed(at::zeros({2, 2}), y).item<double>(), 16);
  EXPECT_EQ(cubed.with_reduction(Reduction::kSum)(at::zeros({2, 2}), y, at::tensor({1.0, 0.5})).item<double>(), 24);
  refused([] { Loss("empty", Loss::Function()); });
}

}  // namespace
}  // namespace lockstep
