#include "lockstep/train/metrics/confusion.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"

namespace lockstep::metrics {
namespace {

// Predictions in their own floating point type, and the weights of right and wrong labels.
struct Weighed {
  at::Tensor predictions = {};
  at::Tensor positives = {};  // float64: the weight where the label is true, 0 elsewhere
  at::Tensor negatives = {};
};

at::Tensor only_top(const ConfusionOptions& options, const at::Tensor& predictions) {
  const auto k = *options.top_k;
  if (predictions.dim() == 0 || predictions.size(-1) < k)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(options.name, ": top_k is ", k, ", predictions have shape ",
                                                           predictions.sizes(), "; there must be k in the last dimension"));
  const auto best = std::get<1>(predictions.topk(k, -1));
  const auto is_best = at::zeros_like(predictions, at::kBool).scatter_(-1, best, true);
  return predictions.masked_fill(is_best.logical_not(), kNever);
}

at::Tensor column(const ConfusionOptions& options, const at::Tensor& tensor) {
  const auto id = *options.class_id;
  if (tensor.dim() < 2 || id >= tensor.size(-1) || id < -tensor.size(-1))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(options.name, ": class_id ", id, " of predictions of shape ", tensor.sizes(),
                              "; they must have shape [examples, classes], with that class"));
  return tensor.select(-1, id).unsqueeze(-1);
}

Weighed weigh(const ConfusionOptions& options, const MetricBatch& batch) {
  auto pair = losses::to_same_rank(losses::to_floating(batch.y_pred), batch.y_true.to(batch.y_pred.device()));
  auto& [predictions, labels] = pair;
  if (predictions.sizes() != labels.sizes())
    throw Error(ErrorCode::kInvalidArgument, lockstep::str(options.name, ": y_true has shape ", batch.y_true.sizes(),
                                                           ", y_pred ", batch.y_pred.sizes(), "; they must be equal"));
  at::Tensor weight;
  if (batch.sample_weight.defined()) {
    weight = batch.sample_weight.to(labels.device(), at::kDouble).unsqueeze(-1);
    weight = losses::to_same_rank(labels, weight, /*expand_rank_1=*/false).second;
  }
  if (options.top_k) predictions = only_top(options, predictions);
  if (options.class_id) {
    predictions = column(options, predictions);
    labels = column(options, labels);
  }
  if (!options.label_weights.empty()) {
    const auto of_labels = at::tensor(options.label_weights, at::kDouble).to(labels.device()).unsqueeze(0);
    const auto expanded = losses::broadcast_to(options.name, {"label_weights", of_labels}, {"y_pred", predictions});
    if (weight.defined()) losses::require_broadcastable(options.name, {"sample_weight", weight}, {"y_pred", predictions});
    weight = weight.defined() ? weight * expanded : expanded;
  }
  const auto is_true = labels != 0;
  if (!weight.defined()) return {predictions, is_true.to(at::kDouble), is_true.logical_not().to(at::kDouble)};
  weight = losses::broadcast_to(options.name, {"sample_weight", weight}, {"y_pred", predictions});
  return {predictions, weight * is_true, weight * is_true.logical_not()};
}

// Sums from the end, by bucket: bucket k is between thresholds k and k + 1, and counts for thresholds 0 to k.
at::Tensor above(const at::Tensor& buckets, const at::Tensor& weights, std::int64_t thresholds) {
  std::vector<std::int64_t> sizes = weights.sizes().vec();
  sizes[0] = thresholds + 1;  // the first is below all thresholds
  const auto sums = at::zeros(sizes, weights.options()).scatter_add_(0, buckets, weights);
  return sums.slice(0, 1).flip(0).cumsum(0).flip(0);
}

Confusion complete(const at::Tensor& true_positives, const at::Tensor& false_positives, const Weighed& all) {
  return {true_positives, false_positives, all.negatives.sum(0) - false_positives, all.positives.sum(0) - true_positives};
}

Confusion count_in_buckets(const ConfusionOptions& options, const Weighed& all) {
  const auto count = static_cast<std::int64_t>(options.thresholds.size());
  // A prediction must be above a threshold: 0.5 belongs to the bucket that ends there. In the predictions' own type, as
  // Keras rounds.
  auto buckets = (all.predictions.clamp(0, 1) * static_cast<double>(count - 1)).ceil() - 1;
  if (options.thresholds.front() < 0 || options.thresholds.back() > 1) buckets = buckets.clamp_min(0);
  const auto indices = at::nan_to_num(buckets, -1.0).to(at::kLong) + 1;
  return complete(above(indices, all.positives, count), above(indices, all.negatives, count), all);
}

Confusion count_one_by_one(const ConfusionOptions& options, const Weighed& all) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(all.predictions.dim()) + 1, 1);
  shape[0] = -1;
  const auto thresholds = at::tensor(options.thresholds, at::kDouble).to(all.predictions.options()).reshape(shape);
  const auto is_above = all.predictions.unsqueeze(0) > thresholds;
  const auto sum = [&](const at::Tensor& weights) { return (is_above * weights.unsqueeze(0)).sum(1); };
  return complete(sum(all.positives), sum(all.negatives), all);
}

}  // namespace

Confusion count_confusion(const ConfusionOptions& options, const MetricBatch& batch) {
  auto all = weigh(options, batch);
  if (!options.is_multi_label)
    for (auto* tensor : {&all.predictions, &all.positives, &all.negatives}) *tensor = tensor->reshape({-1});
  return options.is_even ? count_in_buckets(options, all) : count_one_by_one(options, all);
}

std::vector<double> thresholds_or(const std::string& name, const std::vector<double>& given, double otherwise) {
  for (const double threshold : given)
    if (!(threshold >= 0 && threshold <= 1))
      throw Error(ErrorCode::kInvalidArgument, str(name, ": a threshold is ", threshold, "; thresholds must be in [0, 1]"));
  return given.empty() ? std::vector<double>{otherwise} : given;
}

bool are_even(const std::vector<double>& thresholds) {
  if (thresholds.size() < 3) return false;
  const auto steps = static_cast<double>(thresholds.size() - 1);
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double wanted = static_cast<double>(i) / steps;
    if (!(std::abs(thresholds[i] - wanted) <= losses::kEpsilon + 1e-5 * wanted)) return false;
  }
  return true;
}

std::vector<double> even_thresholds(std::int64_t count) {
  std::vector<double> thresholds;
  for (std::int64_t i = 0; i < count; ++i) thresholds.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  return thresholds;
}

}  // namespace lockstep::metrics
