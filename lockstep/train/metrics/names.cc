#include "lockstep/train/metrics/names.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/train/metrics/accuracy.h"
#include "lockstep/train/metrics/metrics.h"

namespace lockstep::metrics {
namespace {

using Make = Metric (*)();

Metric accuracy_by_shapes() { return Metric("accuracy", automatic_accuracy()); }

const std::map<std::string, Make>& makers() {
  static const auto made = [] {
    std::map<std::string, Make> table;
    const auto enter = [&](Make make, std::initializer_list<const char*> names) {
      for (const char* name : names) table.emplace(name, make);
    };
    enter(accuracy_by_shapes, {"accuracy", "acc", "Accuracy"});
    enter([] { return BinaryAccuracy(); }, {"binary_accuracy", "BinaryAccuracy"});
    enter([] { return CategoricalAccuracy(); }, {"categorical_accuracy", "CategoricalAccuracy"});
    enter([] { return SparseCategoricalAccuracy(); }, {"sparse_categorical_accuracy", "SparseCategoricalAccuracy"});
    enter([] { return TopKCategoricalAccuracy(); }, {"top_k_categorical_accuracy", "TopKCategoricalAccuracy"});
    enter([] { return SparseTopKCategoricalAccuracy(); },
          {"sparse_top_k_categorical_accuracy", "SparseTopKCategoricalAccuracy"});
    enter([] { return Mean(); }, {"mean", "Mean"});
    enter([] { return Sum(); }, {"sum", "Sum"});
    enter([] { return MeanSquaredError(); }, {"mean_squared_error", "MeanSquaredError", "mse", "MSE"});
    enter([] { return RootMeanSquaredError(); }, {"root_mean_squared_error", "RootMeanSquaredError", "rmse"});
    enter([] { return MeanAbsoluteError(); }, {"mean_absolute_error", "MeanAbsoluteError", "mae", "MAE"});
    enter([] { return MeanAbsolutePercentageError(); },
          {"mean_absolute_percentage_error", "MeanAbsolutePercentageError", "mape", "MAPE"});
    enter([] { return MeanSquaredLogarithmicError(); },
          {"mean_squared_logarithmic_error", "MeanSquaredLogarithmicError", "msle", "MSLE"});
    enter([] { return LogCoshError(); }, {"log_cosh_error", "LogCoshError", "logcosh"});
    enter([] { return CosineSimilarity(); }, {"cosine_similarity", "CosineSimilarity"});
    enter([] { return PearsonCorrelation(); }, {"pearson_correlation", "PearsonCorrelation"});
    enter([] { return ConcordanceCorrelation(); }, {"concordance_correlation", "ConcordanceCorrelation"});
    enter([] { return R2Score(); }, {"r2_score", "R2Score"});
    enter([] { return Hinge(); }, {"hinge", "Hinge"});
    enter([] { return SquaredHinge(); }, {"squared_hinge", "SquaredHinge"});
    enter([] { return CategoricalHinge(); }, {"categorical_hinge", "CategoricalHinge"});
    enter([] { return KLDivergence(); }, {"kl_divergence", "KLDivergence", "kld"});
    enter([] { return Poisson(); }, {"poisson", "Poisson"});
    enter([] { return BinaryCrossentropy(); }, {"binary_crossentropy", "BinaryCrossentropy", "bce", "BCE"});
    enter([] { return CategoricalCrossentropy(); }, {"categorical_crossentropy", "CategoricalCrossentropy"});
    enter([] { return SparseCategoricalCrossentropy(); }, {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"});
    enter([] { return AUC(); }, {"auc", "AUC"});
    enter([] { return Precision(); }, {"precision", "Precision"});
    enter([] { return Recall(); }, {"recall", "Recall"});
    enter([] { return TruePositives(); }, {"true_positives", "TruePositives"});
    enter([] { return TrueNegatives(); }, {"true_negatives", "TrueNegatives"});
    enter([] { return FalsePositives(); }, {"false_positives", "FalsePositives"});
    enter([] { return FalseNegatives(); }, {"false_negatives", "FalseNegatives"});
    enter([] { return F1Score(); }, {"f1_score", "F1Score"});
    enter([] { return FBetaScore(); }, {"fbeta_score", "FBetaScore"});
    enter([] { return BinaryIoU(); }, {"binary_iou", "BinaryIoU"});
    return table;
  }();
  return made;
}

}  // namespace

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

std::shared_ptr<const MetricRule> rule_by_name(const std::string& name) {
  const auto found = makers().find(name);
  if (found == makers().end()) throw Error(ErrorCode::kInvalidArgument, unknown_name("a metric", name, metric_names()));
  return found->second().shared_rule();
}

}  // namespace lockstep::metrics
