#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::kEpsilon;

// State: {confusion matrix}, a row for each label's class, a column for each prediction's.
class IouRule : public MetricRule {
 public:
  IouRule(const IoUOptions& options, std::optional<double> threshold) : options_(options), threshold_(threshold) {}

  State zeros(const at::Tensor&, const at::Tensor& y_pred) const override {
    return {zeros_on(y_pred, {options_.num_classes, options_.num_classes})};
  }

  void add(State& state, const MetricBatch& batch) const override {
    const auto pred = threshold_ ? losses::to_floating(batch.y_pred) >= *threshold_ : batch.y_pred;
    const auto found = classes_of(pred, options_.sparse_y_pred);
    const auto wanted = classes_of(batch.y_true.to(pred.device()), options_.sparse_y_true);
    if (found.sizes() != wanted.sizes())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("iou: y_true has shape ", batch.y_true.sizes(), ", y_pred ", batch.y_pred.sizes(),
                                "; there must be as many labels as predictions"));
    auto counts = is_counted(wanted, found).to(at::kDouble);
    if (batch.sample_weight.defined()) {
      // Through the dtype that was asked for: integers, in Keras, cut the weights.
      auto weight = batch.sample_weight.to(found.device(), options_.dtype).to(at::kDouble);
      if (weight.dim() > 1) weight = weight.reshape({-1});
      counts = counts * losses::broadcast_to("iou", {"sample_weight", weight}, {"the labels", found});
    }
    const auto last = options_.num_classes - 1;
    const auto cells = wanted.clamp(0, last) * options_.num_classes + found.clamp(0, last);
    state[0].view({-1}).scatter_add_(0, cells, counts);
  }

  at::Tensor result(const State& state) const override {
    const auto ids = at::tensor(options_.target_class_ids, at::kLong).to(state[0].device());
    const auto both = state[0].diag();
    const auto any = (state[0].sum(0) + state[0].sum(1) - both).index_select(0, ids);
    const auto is_there = any > 1e-9;
    const auto iou = (both.index_select(0, ids) / (any + kEpsilon)).masked_fill(is_there.logical_not(), 0);
    return iou.sum() / (is_there.sum().to(at::kDouble) + kEpsilon);
  }

  Direction direction() const override { return Direction::kUp; }

 private:
  at::Tensor classes_of(const at::Tensor& tensor, bool is_sparse) const {
    if (is_sparse) return tensor.to(at::kLong).reshape({-1});
    return tensor.argmax(losses::axis_of("iou", options_.axis, tensor)).reshape({-1});
  }

  at::Tensor is_counted(const at::Tensor& wanted, const at::Tensor& found) const {
    const auto is_class = [&](const at::Tensor& ids) { return (ids >= 0).logical_and(ids < options_.num_classes); };
    const auto counted = is_class(wanted).logical_and(is_class(found));
    return options_.ignore_class ? counted.logical_and(wanted != *options_.ignore_class) : counted;
  }

  const IoUOptions options_;
  const std::optional<double> threshold_;
};

Metric make(const char* name, const IoUOptions& options, std::optional<double> threshold = std::nullopt) {
  if (options.num_classes < 1)
    throw Error(ErrorCode::kInvalidArgument, str(name, ": num_classes is ", options.num_classes, "; it must be at least 1"));
  if (options.target_class_ids.empty())
    throw Error(ErrorCode::kInvalidArgument, str(name, ": target_class_ids is empty; say which classes count, or use MeanIoU"));
  for (const auto id : options.target_class_ids)
    if (id < 0 || id >= options.num_classes)
      throw Error(ErrorCode::kInvalidArgument,
                  str(name, ": target class ", id, " is out of range; there are ", options.num_classes, " classes, from 0 on"));
  return Metric(options.name.empty() ? name : options.name, std::make_shared<IouRule>(options, threshold));
}

IoUOptions with_all_classes(IoUOptions options) {
  options.target_class_ids.resize(static_cast<std::size_t>(std::max<std::int64_t>(options.num_classes, 0)));
  std::iota(options.target_class_ids.begin(), options.target_class_ids.end(), std::int64_t{0});
  return options;
}

IoUOptions one_hot(const OneHotIoUOptions& options) {
  return {.num_classes = options.num_classes,
          .target_class_ids = options.target_class_ids,
          .ignore_class = options.ignore_class,
          .sparse_y_true = false,
          .sparse_y_pred = options.sparse_y_pred,
          .axis = options.axis,
          .dtype = options.dtype,
          .name = options.name};
}

}  // namespace

Metric IoU(const IoUOptions& options) { return make("iou", options).described(metric_text("IoU", options)); }
Metric MeanIoU(const IoUOptions& options) {
  return make("mean_iou", with_all_classes(options)).described(metric_text("MeanIoU", options));
}
Metric OneHotIoU(const OneHotIoUOptions& options) {
  return make("one_hot_iou", one_hot(options)).described(metric_text("OneHotIoU", options));
}
Metric OneHotMeanIoU(const OneHotIoUOptions& options) {
  return make("one_hot_mean_iou", with_all_classes(one_hot(options))).described(metric_text("OneHotMeanIoU", options));
}

Metric BinaryIoU(const BinaryIoUOptions& options) {
  IoUOptions all;
  all.target_class_ids = options.target_class_ids;
  all.dtype = options.dtype;
  all.name = options.name;
  return make("binary_iou", all, options.threshold).described(metric_text("BinaryIoU", options));
}

}  // namespace lockstep::metrics
