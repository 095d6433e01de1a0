#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/metrics/metric.h"

// Keras's metrics, by function, under its names and with its arguments. Those that need no argument are also known by
// name: Metric("accuracy"). In all of them `name` is what logs call it; "": Keras's own name. Arguments out of range are
// kInvalidArgument.
//
//   model.compile({.metrics = {"accuracy", ls::metrics::AUC({.curve = "PR"})}});

namespace lockstep::metrics {

struct MetricOptions {
  std::string name = "";
};

// Of values: update_state(values, sample_weight).
Metric Mean(const MetricOptions& options = {});
Metric Sum(const MetricOptions& options = {});

// The part of examples whose prediction is the label.
Metric Accuracy(const MetricOptions& options = {});
Metric CategoricalAccuracy(const MetricOptions& options = {});        // labels are one-hot
Metric SparseCategoricalAccuracy(const MetricOptions& options = {});  // labels are class numbers

struct BinaryAccuracyOptions {
  double threshold = 0.5;
  std::string name = "";
};
Metric BinaryAccuracy(const BinaryAccuracyOptions& options = {});

// The label is among the k highest predictions.
struct TopKOptions {
  std::int64_t k = 5;
  bool from_sorted_ids = false;  // sparse only: predictions are class numbers, the best first
  std::string name = "";
};
Metric TopKCategoricalAccuracy(const TopKOptions& options = {});
Metric SparseTopKCategoricalAccuracy(const TopKOptions& options = {});

// Means of losses, and others over the last dimension.
Metric MeanSquaredError(const MetricOptions& options = {});
Metric RootMeanSquaredError(const MetricOptions& options = {});
Metric MeanAbsoluteError(const MetricOptions& options = {});
Metric MeanAbsolutePercentageError(const MetricOptions& options = {});
Metric MeanSquaredLogarithmicError(const MetricOptions& options = {});
Metric LogCoshError(const MetricOptions& options = {});
Metric Hinge(const MetricOptions& options = {});
Metric SquaredHinge(const MetricOptions& options = {});
Metric CategoricalHinge(const MetricOptions& options = {});
Metric KLDivergence(const MetricOptions& options = {});
Metric Poisson(const MetricOptions& options = {});

struct AxisOptions {
  std::int64_t axis = -1;
  std::string name = "";
};
Metric CosineSimilarity(const AxisOptions& options = {});  // 1: the same direction
Metric PearsonCorrelation(const AxisOptions& options = {});
Metric ConcordanceCorrelation(const AxisOptions& options = {});

struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0.0;
  std::int64_t axis = -1;
  std::string name = "";
};
Metric BinaryCrossentropy(const CrossentropyOptions& options = {});
Metric CategoricalCrossentropy(const CrossentropyOptions& options = {});
struct SparseCrossentropyOptions {
  bool from_logits = false;
  std::optional<std::int64_t> ignore_class = std::nullopt;
  std::int64_t axis = -1;
  std::string name = "";
};
Metric SparseCategoricalCrossentropy(const SparseCrossentropyOptions& options = {});

// Labels and predictions have shape [examples, outputs].
struct R2ScoreOptions {
  std::string class_aggregation = "uniform_average";  // "variance_weighted_average", or "": one for each output
  std::int64_t num_regressors = 0;                    // above 0: the adjusted score
  std::string name = "";
};
Metric R2Score(const R2ScoreOptions& options = {});

// Counts of predictions above (positive) and not above thresholds in [0, 1]; none given: 0.5. Several give one number each.
struct CountOptions {
  std::vector<double> thresholds = {};
  std::string name = "";
};
Metric TruePositives(const CountOptions& options = {});
Metric TrueNegatives(const CountOptions& options = {});
Metric FalsePositives(const CountOptions& options = {});
Metric FalseNegatives(const CountOptions& options = {});

struct PrecisionOptions {
  std::vector<double> thresholds = {};
  std::optional<std::int64_t> top_k = std::nullopt;     // only the k highest predictions of an example are positive
  std::optional<std::int64_t> class_id = std::nullopt;  // only this column counts
  std::string name = "";
};
Metric Precision(const PrecisionOptions& options = {});
Metric Recall(const PrecisionOptions& options = {});

// The best of one that can be had where the other is at least `value`, over evenly spaced thresholds.
struct AtOptions {
  double value = 0.5;  // in [0, 1]
  std::int64_t num_thresholds = 200;
  std::optional<std::int64_t> class_id = std::nullopt;
  std::string name = "";
};
Metric SensitivityAtSpecificity(const AtOptions& options);
Metric SpecificityAtSensitivity(const AtOptions& options);
Metric PrecisionAtRecall(const AtOptions& options);
Metric RecallAtPrecision(const AtOptions& options);

struct AUCOptions {
  std::int64_t num_thresholds = 200;
  std::string curve = "ROC";                       // "PR", "PRGAIN"
  std::string summation_method = "interpolation";  // "minoring", "majoring"
  std::vector<double> thresholds = {};             // in place of num_thresholds evenly spaced ones
  bool multi_label = false;                        // one curve for each column of [examples, labels], then their mean
  std::optional<std::int64_t> num_labels = std::nullopt;
  std::vector<double> label_weights = {};  // of the columns
  bool from_logits = false;
  std::string name = "";
};
Metric AUC(const AUCOptions& options = {});

// Labels (0 and 1) and predictions have shape [examples, classes].
struct FBetaScoreOptions {
  std::string average = "";  // "micro", "macro", "weighted", or "": one for each class
  double beta = 1.0;
  std::optional<double> threshold = std::nullopt;  // absent: the highest prediction of an example is positive
  std::string name = "";
};
Metric FBetaScore(const FBetaScoreOptions& options = {});
struct F1ScoreOptions {
  std::string average = "";
  std::optional<double> threshold = std::nullopt;
  std::string name = "";
};
Metric F1Score(const F1ScoreOptions& options = {});

// Intersection over union of labels and predictions, which are class numbers, or with sparse_* false one number for each
// class along `axis`. Class numbers out of range do not count.
struct IoUOptions {
  std::int64_t num_classes = 2;
  std::vector<std::int64_t> target_class_ids = {};  // the mean over these; MeanIoU: all
  std::optional<std::int64_t> ignore_class = std::nullopt;
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  std::int64_t axis = -1;
  at::ScalarType dtype = at::kInt;  // of the weights: Keras cuts them to integers unless told otherwise
  std::string name = "";
};
Metric IoU(const IoUOptions& options);
Metric MeanIoU(const IoUOptions& options);
// The labels are one-hot.
struct OneHotIoUOptions {
  std::int64_t num_classes = 2;
  std::vector<std::int64_t> target_class_ids = {};
  std::optional<std::int64_t> ignore_class = std::nullopt;
  bool sparse_y_pred = false;
  std::int64_t axis = -1;
  at::ScalarType dtype = at::kInt;
  std::string name = "";
};
Metric OneHotIoU(const OneHotIoUOptions& options);
Metric OneHotMeanIoU(const OneHotIoUOptions& options);
struct BinaryIoUOptions {
  std::vector<std::int64_t> target_class_ids = {0, 1};
  double threshold = 0.5;  // predictions of at least this are class 1
  at::ScalarType dtype = at::kInt;
  std::string name = "";
};
Metric BinaryIoU(const BinaryIoUOptions& options = {});

}  // namespace lockstep::metrics
