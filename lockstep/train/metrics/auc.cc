#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/confusion.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::divide_no_nan;

enum class Curve { kRoc, kPr, kPrGain };
enum class Summation { kInterpolation, kMinoring, kMajoring };

Curve curve_of(const std::string& name) {
  const auto text = upper(name);
  if (text == "ROC") return Curve::kRoc;
  if (text == "PR") return Curve::kPr;
  if (text == "PRGAIN") return Curve::kPrGain;
  throw Error(ErrorCode::kInvalidArgument, str("AUC: curve is '", name, "'; it must be 'ROC', 'PR' or 'PRGAIN'"));
}

Summation summation_of(const std::string& name) {
  const auto text = upper(name);
  if (text == "INTERPOLATION") return Summation::kInterpolation;
  if (text == "MINORING") return Summation::kMinoring;
  if (text == "MAJORING") return Summation::kMajoring;
  throw Error(ErrorCode::kInvalidArgument,
              str("AUC: summation_method is '", name, "'; it must be 'interpolation', 'minoring' or 'majoring'"));
}

// All but the last, all but the first: the two ends of every piece of a curve.
at::Tensor left(const at::Tensor& points) { return points.slice(0, 0, -1); }
at::Tensor right(const at::Tensor& points) { return points.slice(0, 1); }

struct Points {
  at::Tensor x = {};
  at::Tensor y = {};
};

// State: {true positives, false positives, true negatives, false negatives}, by threshold (and label).
class AucRule : public MetricRule {
 public:
  explicit AucRule(const AUCOptions& options)
      : options_(options), curve_(curve_of(options.curve)), summation_(summation_of(options.summation_method)) {
    confusion_.name = "auc";
    confusion_.is_multi_label = options.multi_label;
    if (!options.multi_label) confusion_.label_weights = options.label_weights;
    set_thresholds();
  }

  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override {
    const auto thresholds = static_cast<std::int64_t>(confusion_.thresholds.size());
    std::vector<std::int64_t> sizes{thresholds};
    if (options_.multi_label) {
      const auto labels = labels_of(y_pred);
      if (labels < 0) return {};
      sizes.push_back(labels);
    }
    State state;
    for (int i = 0; i < 4; ++i) state.push_back(zeros_on(y_pred, sizes));
    return state;
  }

  void add(State& state, const MetricBatch& batch) const override {
    auto given = batch;
    if (options_.from_logits) given.y_pred = losses::to_floating(batch.y_pred).sigmoid();
    const auto counts = count_confusion(confusion_, given);
    state[0].add_(counts.true_positives);
    state[1].add_(counts.false_positives);
    state[2].add_(counts.true_negatives);
    state[3].add_(counts.false_negatives);
  }

  at::Tensor result(const State& state) const override {
    const auto pieces =
        curve_ == Curve::kPr && summation_ == Summation::kInterpolation ? interpolated_pr(state) : riemann(state);
    const auto areas = pieces.sum(0);
    if (!options_.multi_label) return areas;
    if (options_.label_weights.empty()) return areas.mean();
    const auto weights = at::tensor(options_.label_weights, at::kDouble).to(areas.device());
    losses::require_broadcastable("auc", {"label_weights", weights}, {"the labels' areas", areas});
    return divide_no_nan((areas * weights).sum(), weights.sum());
  }

  Direction direction() const override { return Direction::kUp; }

 private:
  void set_thresholds() {
    auto& thresholds = confusion_.thresholds;
    if (options_.thresholds.empty()) {
      thresholds = even_thresholds(options_.num_thresholds);
      confusion_.is_even = true;
    } else {
      thresholds = options_.thresholds;
      std::ranges::sort(thresholds);
      thresholds.insert(thresholds.begin(), 0.0);
      thresholds.push_back(1.0);
      confusion_.is_even = are_even(thresholds);
    }
    // So that every prediction is above the first and none above the last.
    thresholds.front() = -losses::kEpsilon;
    thresholds.back() = 1 + losses::kEpsilon;
  }

  // -1: not known yet.
  std::int64_t labels_of(const at::Tensor& y_pred) const {
    if (!y_pred.defined()) return options_.num_labels.value_or(-1);
    if (y_pred.dim() != 2 || (options_.num_labels && *options_.num_labels != y_pred.size(1)))
      throw Error(ErrorCode::kInvalidArgument, lockstep::str("auc: predictions of shape ", y_pred.sizes(),
                                                             "; with multi_label they must have shape [examples, labels]"));
    return y_pred.size(1);
  }

  Points points(const State& state) const {
    const auto &tp = state[0], &fp = state[1], &tn = state[2], &fn = state[3];
    const auto recall = divide_no_nan(tp, tp + fn);
    if (curve_ == Curve::kRoc) return {divide_no_nan(fp, fp + tn), recall};
    if (curve_ == Curve::kPr) return {recall, divide_no_nan(tp, tp + fp)};
    const auto scale = divide_no_nan(tp + fn, tn + fp);
    const auto is_none = tp == 0;
    const auto recall_gain = (1 - scale * divide_no_nan(fn, tp)).masked_fill(is_none, 0).clamp_min(0);
    const auto precision_gain = (1 - scale * divide_no_nan(fp, tp)).masked_fill(is_none, 1);
    return {recall_gain, precision_gain};
  }

  at::Tensor riemann(const State& state) const {
    const auto [x, y] = points(state);
    const auto heights = summation_ == Summation::kInterpolation ? (left(y) + right(y)) / 2
                         : summation_ == Summation::kMinoring    ? at::minimum(left(y), right(y))
                                                                 : at::maximum(left(y), right(y));
    return (left(x) - right(x)) * heights;
  }

  // Precision is not a straight line between two points of the curve: Davis and Goadrich, 2006.
  static at::Tensor interpolated_pr(const State& state) {
    const auto& tp = state[0];
    const auto positive = tp + state[1];
    const auto more_true = left(tp) - right(tp);
    const auto slope = divide_no_nan(more_true, (left(positive) - right(positive)).clamp_min(0));
    const auto intercept = right(tp) - slope * right(positive);
    const auto is_safe = (left(positive) > 0).logical_and(right(positive) > 0);
    const auto ratio = divide_no_nan(left(positive), right(positive).clamp_min(0)).masked_fill(is_safe.logical_not(), 1);
    return divide_no_nan(slope * (more_true + intercept * ratio.log()), (right(tp) + right(state[3])).clamp_min(0));
  }

  const AUCOptions options_;
  const Curve curve_;
  const Summation summation_;
  ConfusionOptions confusion_;
};

}  // namespace

Metric AUC(const AUCOptions& options) {
  if (options.thresholds.empty() && options.num_thresholds < 2)
    throw Error(ErrorCode::kInvalidArgument, str("AUC: num_thresholds is ", options.num_thresholds, "; it must be above 1"));
  if (options.num_labels && !options.multi_label)
    throw Error(ErrorCode::kInvalidArgument, "AUC: num_labels is for multi_label only; leave it out, or set multi_label");
  return Metric(options.name.empty() ? "auc" : options.name, std::make_shared<AucRule>(options))
      .described(metric_text("AUC", options));
}

}  // namespace lockstep::metrics
