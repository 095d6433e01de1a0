#include "lockstep/train/metrics/accuracy.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using losses::PerExample;
using losses::to_same_rank;

// Whether each prediction is right, in the shape of the labels.
using Matches = std::function<at::Tensor(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred)>;

class AccuracyRule : public MeanRule {
 public:
  AccuracyRule(const char* name, Matches matches) : MeanRule(name, Direction::kUp), matches_(std::move(matches)) {}

 protected:
  PerExample values(const MetricBatch& batch) const override { return {matches_(name(), batch.y_true, batch.y_pred)}; }

 private:
  const Matches matches_;
};

at::Tensor equal(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
  const auto labels = y_true.to(y_pred.device());
  losses::require_broadcastable(name, {"y_true", labels}, {"y_pred", y_pred});
  return at::eq(labels, y_pred);
}

at::Tensor exact_matches(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
  const auto both = to_same_rank(y_true.to(y_pred.scalar_type()), y_pred);
  return equal(name, both.first, both.second);
}

at::Tensor binary_matches(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred, double threshold) {
  const auto both = to_same_rank(y_true, y_pred);
  return equal(name, both.first, both.second > threshold);
}

// Of class numbers with predictions of one more dimension; a last dimension of 1 in the labels is left out of account.
at::Tensor class_matches(const std::string& name, const at::Tensor& classes, const at::Tensor& y_pred) {
  losses::axis_of(name, -1, y_pred);
  const bool is_squeezed = classes.dim() == y_pred.dim() && classes.size(-1) == 1;
  const auto matches = equal(name, is_squeezed ? classes.squeeze(-1) : classes, y_pred.argmax(-1));
  return is_squeezed && matches.dim() > 1 ? matches.unsqueeze(-1) : matches;
}

at::Tensor categorical_matches(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
  losses::axis_of(name, -1, y_true);
  return class_matches(name, y_true.argmax(-1), y_pred);
}

at::Tensor automatic_matches(const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
  losses::axis_of(name, -1, y_pred);
  if (y_pred.size(-1) == 1) return binary_matches(name, y_true, y_pred, 0.5);
  const bool is_sparse = y_true.dim() < y_pred.dim() || y_true.size(-1) == 1;
  return is_sparse ? class_matches(name, y_true, y_pred) : categorical_matches(name, y_true, y_pred);
}

// [rows, classes] and [rows].
struct Rows {
  at::Tensor classes = {};
  at::Tensor predictions = {};
};

Rows to_rows(const std::string& name, const at::Tensor& classes, const at::Tensor& y_pred) {
  losses::axis_of(name, -1, y_pred);
  Rows rows{classes.to(y_pred.device()).reshape({-1}), y_pred.dim() > 2 ? y_pred.reshape({-1, y_pred.size(-1)}) : y_pred};
  if (rows.predictions.dim() == 2 && rows.classes.numel() == rows.predictions.size(0)) return rows;
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str(name, ": ", rows.classes.numel(), " labels for predictions of shape ", y_pred.sizes(),
                            "; there must be one label for each row of predictions"));
}

// Fewer than k predictions are above that of the label. As in TensorFlow a row that is not finite has no such class.
at::Tensor is_in_top(const Rows& rows, std::int64_t k) {
  const auto classes = rows.classes.to(at::kLong);
  const auto is_class = (classes >= 0).logical_and(classes < rows.predictions.size(1));
  const auto wanted = classes.clamp(0, rows.predictions.size(1) - 1).unsqueeze(1);
  const auto above = (rows.predictions > rows.predictions.gather(1, wanted)).sum(1);
  return (above < k).logical_and(is_class).logical_and(at::isfinite(rows.predictions).all(1));
}

void require_k(const char* name, std::int64_t k) {
  if (k < 1) throw Error(ErrorCode::kInvalidArgument, str(name, ": k is ", k, "; it must be at least 1"));
}

Metric make(const std::string& name, const char* otherwise, Matches matches) {
  return Metric(name.empty() ? otherwise : name, std::make_shared<AccuracyRule>(otherwise, std::move(matches)));
}

}  // namespace

std::shared_ptr<const MetricRule> automatic_accuracy() { return std::make_shared<AccuracyRule>("accuracy", automatic_matches); }

Metric Accuracy(const MetricOptions& options) {
  return make(options.name, "accuracy", exact_matches).described(metric_text("Accuracy", options));
}

Metric BinaryAccuracy(const BinaryAccuracyOptions& options) {
  return make(options.name, "binary_accuracy",
              [threshold = options.threshold](const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
                return binary_matches(name, y_true, y_pred, threshold);
              })
      .described(metric_text("BinaryAccuracy", options));
}

Metric CategoricalAccuracy(const MetricOptions& options) {
  return make(options.name, "categorical_accuracy", categorical_matches).described(metric_text("CategoricalAccuracy", options));
}

Metric SparseCategoricalAccuracy(const MetricOptions& options) {
  return make(options.name, "sparse_categorical_accuracy", class_matches)
      .described(metric_text("SparseCategoricalAccuracy", options));
}

Metric TopKCategoricalAccuracy(const TopKOptions& options) {
  require_k("TopKCategoricalAccuracy", options.k);
  return make(options.name, "top_k_categorical_accuracy",
              [k = options.k](const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
                losses::axis_of(name, -1, y_true);
                const auto classes = y_true.argmax(-1);
                return is_in_top(to_rows(name, classes, y_pred), k).reshape(classes.sizes());
              })
      .described(metric_text("TopKCategoricalAccuracy", options));
}

Metric SparseTopKCategoricalAccuracy(const TopKOptions& options) {
  require_k("SparseTopKCategoricalAccuracy", options.k);
  return make(options.name, "sparse_top_k_categorical_accuracy",
              [options](const std::string& name, const at::Tensor& y_true, const at::Tensor& y_pred) {
                const auto rows = to_rows(name, y_true, y_pred);
                const auto matches = options.from_sorted_ids
                                         ? at::eq(rows.classes.unsqueeze(1), rows.predictions.slice(1, 0, options.k)).any(1)
                                         : is_in_top(rows, options.k);
                return matches.reshape(y_true.sizes());
              })
      .described(metric_text("SparseTopKCategoricalAccuracy", options));
}

}  // namespace lockstep::metrics
