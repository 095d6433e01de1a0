#include <ATen/ATen.h>

#include "lockstep/train/losses/losses.h"
#include "lockstep/train/losses/names.h"
#include "lockstep/train/metrics/metrics.h"
#include "lockstep/train/metrics/names.h"
#include "tests/support/testing.h"

// Losses and metrics that go to another task as text.

namespace lockstep {
namespace {

using metrics::metric_names;
using testing::code_of;

at::Tensor probabilities() { return ((at::arange(24, at::kFloat).reshape({6, 4}) * 1.7).sin() * 0.4 + 0.5).softmax(1); }
at::Tensor one_hot() { return at::one_hot(at::arange(6, at::kLong) % 4, 4).to(at::kFloat); }
at::Tensor classes() { return at::arange(6, at::kLong) % 4; }

// Whether it takes class numbers, or labels of the predictions' shape.
bool is_sparse(const std::string& name) {
  return name.find("sparse") != std::string::npos || name.find("generalized") != std::string::npos;
}

void expect_same(const Loss& loss) {
  const auto there = Loss::from_text(loss.to_text());
  EXPECT_EQ(there.name(), loss.name());
  EXPECT_EQ(there.reduction(), loss.reduction()) << loss.name();
  EXPECT_EQ(there.is_divided_by_data(), loss.is_divided_by_data()) << loss.name();
  const auto labels = is_sparse(loss.name()) ? classes() : one_hot();
  EXPECT_TRUE(at::equal(there(labels, probabilities()), loss(labels, probabilities()))) << loss.to_text();
  EXPECT_EQ(there.to_text(), loss.to_text());
}

void expect_same(Metric metric) {
  auto there = Metric::from_text(metric.to_text());
  EXPECT_EQ(there.name(), metric.name());
  EXPECT_EQ(there.to_text(), metric.to_text());
  for (auto* one : {&metric, &there}) {
    if (one->rule().is_of_values()) one->update_state(probabilities());
    else one->update_state(one_hot(), probabilities());
  }
  EXPECT_TRUE(at::equal(there.result().nan_to_num(7), metric.result().nan_to_num(7))) << metric.to_text();
}

TEST(TextOfLosses, EveryNamedLossComesBack) {
  for (const auto& name : losses::loss_names()) expect_same(Loss(name));
  for (const auto reduction : {Reduction::kSum, Reduction::kNone, Reduction::kMeanWithSampleWeight})
    expect_same(Loss("mse").with_reduction(reduction));
}

TEST(TextOfLosses, OptionsComeBack) {
  expect_same(huber({.delta = 0.1, .reduction = Reduction::kSum}));
  expect_same(binary_crossentropy({.from_logits = true, .label_smoothing = 0.1, .axis = 0}));
  expect_same(binary_focal_crossentropy({.apply_class_balancing = true, .alpha = 0.3, .gamma = 1.5}));
  expect_same(categorical_focal_crossentropy({.alpha = 0.3, .gamma = 1.5, .from_logits = true}));
  expect_same(sparse_categorical_crossentropy({.from_logits = true, .ignore_class = 2}));
  expect_same(tversky({.alpha = 0.3, .beta = 0.7, .axis = 1}));
  EXPECT_NE(huber({.delta = 0.1}).to_text(), huber().to_text());
}

TEST(TextOfLosses, ALambdaWithoutCapturesIsFoundByItsType) {
  const Loss mine("mine", [](const at::Tensor& y_true, const at::Tensor& y_pred) { return (y_true - y_pred).abs().amax(1); });
  expect_same(mine);
  expect_same(mine.with_reduction(Reduction::kSum));
  expect_same(Metric("worst", [](const at::Tensor& y_true, const at::Tensor& y_pred) { return (y_true - y_pred).amax(1); }));
}

TEST(TextOfLosses, WhatCannotTravelSaysSo) {
  const double factor = 2;
  const auto captures = [factor](const at::Tensor& y_true, const at::Tensor& y_pred) {
    return ((y_true - y_pred) * factor).sum(1);
  };
  EXPECT_EQ(code_of([&] { Loss("mine", captures).to_text(); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { Metric("mine", captures).to_text(); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([&] { Metric(Loss("mine", captures)).to_text(); }), ErrorCode::kUnimplemented);
  EXPECT_EQ(code_of([] { Metric("own", Metric("mae").shared_rule()).to_text(); }), ErrorCode::kUnimplemented);
}

TEST(TextOfLosses, OtherTextsAreRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"loss":"huger","options":{}})", R"({"loss":"huber"})",
                           R"({"loss":"huber","options":{"delta":"x"}})", R"({"loss":"huber","options":{"gamma":1}})",
                           R"({"loss":"huber","options":{},"reduction":"most"})", R"({"loss":"huber","options":{},"x":1})"})
    EXPECT_EQ(code_of([&] { Loss::from_text(text); }), ErrorCode::kInvalidArgument) << text;
  EXPECT_EQ(code_of([] { Loss::from_text(R"({"function":"nobody's","name":"x"})"); }), ErrorCode::kNotFound);
  for (const char* text : {"", "{}", R"({"metric":"UAC","options":{}})", R"({"metric":"AUC","options":{"curve":1}})"})
    EXPECT_EQ(code_of([&] { Metric::from_text(text); }), ErrorCode::kInvalidArgument) << text;
}

TEST(TextOfMetrics, EveryNamedMetricComesBack) {
  for (const auto& name : metric_names()) {
    const Metric metric(name);
    const auto there = Metric::from_text(metric.to_text());
    EXPECT_EQ(there.name(), metric.name());
    EXPECT_EQ(typeid(there.rule()), typeid(metric.rule())) << name;
  }
  for (const char* name : {"accuracy", "mse", "auc", "precision", "f1_score", "r2_score", "mean", "rmse"})
    expect_same(Metric(name));
}

TEST(TextOfMetrics, OptionsAndNamesComeBack) {
  expect_same(metrics::AUC({.num_thresholds = 50, .curve = "PR", .multi_label = true, .label_weights = {1, 2, 3, 4}}));
  expect_same(metrics::Precision({.thresholds = {0.2, 0.3}, .class_id = 1, .name = "first"}));
  expect_same(metrics::Recall({.top_k = 2}));
  expect_same(metrics::SensitivityAtSpecificity({.value = 0.3, .num_thresholds = 20}));
  expect_same(metrics::R2Score({.class_aggregation = "", .num_regressors = 1}));
  expect_same(metrics::FBetaScore({.average = "macro", .beta = 2, .threshold = 0.25}));
  expect_same(metrics::OneHotMeanIoU({.num_classes = 4, .ignore_class = 1, .dtype = at::kFloat}));
  expect_same(metrics::BinaryIoU({.target_class_ids = {1}, .threshold = 0.25}));
  expect_same(metrics::CosineSimilarity({.axis = 0}));
  expect_same(Metric(huber({.delta = 0.2})).renamed("h"));
}

}  // namespace
}  // namespace lockstep
