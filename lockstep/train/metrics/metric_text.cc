#include "lockstep/train/metrics/metric_text.h"

#include "lockstep/train/metrics/metrics.h"
#include "lockstep/train/options_text.h"

namespace lockstep::metrics {
namespace {

using lockstep::internal::any_of_table;
using lockstep::internal::OptionsReader;
using lockstep::internal::OptionsWriter;
using lockstep::internal::OrderedJson;

constexpr const char* kWhat = "a metric";

// What each kind has of its own, by name, but for the name of the metric. `f` writes or reads.
template <typename F>
void list(MetricOptions&, F&) {}
template <typename F>
void list(BinaryAccuracyOptions& o, F& f) {
  f("threshold", o.threshold);
}
template <typename F>
void list(TopKOptions& o, F& f) {
  f("k", o.k), f("from_sorted_ids", o.from_sorted_ids);
}
template <typename F>
void list(AxisOptions& o, F& f) {
  f("axis", o.axis);
}
template <typename F>
void list(CrossentropyOptions& o, F& f) {
  f("from_logits", o.from_logits), f("label_smoothing", o.label_smoothing), f("axis", o.axis);
}
template <typename F>
void list(SparseCrossentropyOptions& o, F& f) {
  f("from_logits", o.from_logits), f("ignore_class", o.ignore_class), f("axis", o.axis);
}
template <typename F>
void list(R2ScoreOptions& o, F& f) {
  f("class_aggregation", o.class_aggregation), f("num_regressors", o.num_regressors);
}
template <typename F>
void list(CountOptions& o, F& f) {
  f("thresholds", o.thresholds);
}
template <typename F>
void list(PrecisionOptions& o, F& f) {
  f("thresholds", o.thresholds), f("top_k", o.top_k), f("class_id", o.class_id);
}
template <typename F>
void list(AtOptions& o, F& f) {
  f("value", o.value), f("num_thresholds", o.num_thresholds), f("class_id", o.class_id);
}
template <typename F>
void list(AUCOptions& o, F& f) {
  f("num_thresholds", o.num_thresholds), f("curve", o.curve), f("summation_method", o.summation_method),
      f("thresholds", o.thresholds), f("multi_label", o.multi_label), f("num_labels", o.num_labels),
      f("label_weights", o.label_weights), f("from_logits", o.from_logits);
}
template <typename F>
void list(FBetaScoreOptions& o, F& f) {
  f("average", o.average), f("beta", o.beta), f("threshold", o.threshold);
}
template <typename F>
void list(F1ScoreOptions& o, F& f) {
  f("average", o.average), f("threshold", o.threshold);
}
template <typename F>
void list(IoUOptions& o, F& f) {
  f("num_classes", o.num_classes), f("target_class_ids", o.target_class_ids), f("ignore_class", o.ignore_class),
      f("sparse_y_true", o.sparse_y_true), f("sparse_y_pred", o.sparse_y_pred), f("axis", o.axis), f("dtype", o.dtype);
}
template <typename F>
void list(OneHotIoUOptions& o, F& f) {
  f("num_classes", o.num_classes), f("target_class_ids", o.target_class_ids), f("ignore_class", o.ignore_class),
      f("sparse_y_pred", o.sparse_y_pred), f("axis", o.axis), f("dtype", o.dtype);
}
template <typename F>
void list(BinaryIoUOptions& o, F& f) {
  f("target_class_ids", o.target_class_ids), f("threshold", o.threshold), f("dtype", o.dtype);
}

template <typename Options>
struct Kind {
  const char* name;
  Metric (*make)(const Options& options);
};
constexpr std::tuple kKinds(
    Kind<MetricOptions>{"Mean", &Mean}, Kind<MetricOptions>{"Sum", &Sum}, Kind<MetricOptions>{"Accuracy", &Accuracy},
    Kind<MetricOptions>{"CategoricalAccuracy", &CategoricalAccuracy},
    Kind<MetricOptions>{"SparseCategoricalAccuracy", &SparseCategoricalAccuracy},
    Kind<BinaryAccuracyOptions>{"BinaryAccuracy", &BinaryAccuracy},
    Kind<TopKOptions>{"TopKCategoricalAccuracy", &TopKCategoricalAccuracy},
    Kind<TopKOptions>{"SparseTopKCategoricalAccuracy", &SparseTopKCategoricalAccuracy},
    Kind<MetricOptions>{"MeanSquaredError", &MeanSquaredError},
    Kind<MetricOptions>{"RootMeanSquaredError", &RootMeanSquaredError},
    Kind<MetricOptions>{"MeanAbsoluteError", &MeanAbsoluteError},
    Kind<MetricOptions>{"MeanAbsolutePercentageError", &MeanAbsolutePercentageError},
    Kind<MetricOptions>{"MeanSquaredLogarithmicError", &MeanSquaredLogarithmicError},
    Kind<MetricOptions>{"LogCoshError", &LogCoshError}, Kind<MetricOptions>{"Hinge", &Hinge},
    Kind<MetricOptions>{"SquaredHinge", &SquaredHinge}, Kind<MetricOptions>{"CategoricalHinge", &CategoricalHinge},
    Kind<MetricOptions>{"KLDivergence", &KLDivergence}, Kind<MetricOptions>{"Poisson", &Poisson},
    Kind<AxisOptions>{"CosineSimilarity", &CosineSimilarity}, Kind<AxisOptions>{"PearsonCorrelation", &PearsonCorrelation},
    Kind<AxisOptions>{"ConcordanceCorrelation", &ConcordanceCorrelation},
    Kind<CrossentropyOptions>{"BinaryCrossentropy", &BinaryCrossentropy},
    Kind<CrossentropyOptions>{"CategoricalCrossentropy", &CategoricalCrossentropy},
    Kind<SparseCrossentropyOptions>{"SparseCategoricalCrossentropy", &SparseCategoricalCrossentropy},
    Kind<R2ScoreOptions>{"R2Score", &R2Score}, Kind<CountOptions>{"TruePositives", &TruePositives},
    Kind<CountOptions>{"TrueNegatives", &TrueNegatives}, Kind<CountOptions>{"FalsePositives", &FalsePositives},
    Kind<CountOptions>{"FalseNegatives", &FalseNegatives}, Kind<PrecisionOptions>{"Precision", &Precision},
    Kind<PrecisionOptions>{"Recall", &Recall}, Kind<AtOptions>{"SensitivityAtSpecificity", &SensitivityAtSpecificity},
    Kind<AtOptions>{"SpecificityAtSensitivity", &SpecificityAtSensitivity},
    Kind<AtOptions>{"PrecisionAtRecall", &PrecisionAtRecall}, Kind<AtOptions>{"RecallAtPrecision", &RecallAtPrecision},
    Kind<AUCOptions>{"AUC", &AUC}, Kind<FBetaScoreOptions>{"FBetaScore", &FBetaScore},
    Kind<F1ScoreOptions>{"F1Score", &F1Score}, Kind<IoUOptions>{"IoU", &IoU}, Kind<IoUOptions>{"MeanIoU", &MeanIoU},
    Kind<OneHotIoUOptions>{"OneHotIoU", &OneHotIoU}, Kind<OneHotIoUOptions>{"OneHotMeanIoU", &OneHotMeanIoU},
    Kind<BinaryIoUOptions>{"BinaryIoU", &BinaryIoU});

std::string one_text(const char* name, const std::string& value) {
  OrderedJson all;
  all[name] = value;
  return lockstep::internal::to_text(all);
}

Metric built_in(const std::string& kind, const OrderedJson& options) {
  std::optional<Metric> made;
  any_of_table(kKinds, [&]<typename Options>(const Kind<Options>& known) {
    if (kind != known.name) return false;
    Options own;
    OptionsReader reader{options, kWhat, kind};
    list(own, reader);
    reader.end();
    made = known.make(own);
    return true;
  });
  if (!made) throw Error(ErrorCode::kInvalidArgument, str("a metric as text: there is no metric '", kind, "'"));
  return *made;
}

}  // namespace

template <typename Options>
Metric::Description metric_text(const char* kind, const Options& options) {
  return [kind, options] {
    OrderedJson all;
    all["metric"] = kind;
    auto own = options;
    OptionsWriter writer{all["options"] = OrderedJson::object(), kWhat};
    list(own, writer);
    return lockstep::internal::to_text(all);
  };
}
template Metric::Description metric_text(const char*, const MetricOptions&);
template Metric::Description metric_text(const char*, const BinaryAccuracyOptions&);
template Metric::Description metric_text(const char*, const TopKOptions&);
template Metric::Description metric_text(const char*, const AxisOptions&);
template Metric::Description metric_text(const char*, const CrossentropyOptions&);
template Metric::Description metric_text(const char*, const SparseCrossentropyOptions&);
template Metric::Description metric_text(const char*, const R2ScoreOptions&);
template Metric::Description metric_text(const char*, const CountOptions&);
template Metric::Description metric_text(const char*, const PrecisionOptions&);
template Metric::Description metric_text(const char*, const AtOptions&);
template Metric::Description metric_text(const char*, const AUCOptions&);
template Metric::Description metric_text(const char*, const FBetaScoreOptions&);
template Metric::Description metric_text(const char*, const F1ScoreOptions&);
template Metric::Description metric_text(const char*, const IoUOptions&);
template Metric::Description metric_text(const char*, const OneHotIoUOptions&);
template Metric::Description metric_text(const char*, const BinaryIoUOptions&);

Metric::Description metric_text(const std::string& name) {
  return [name] { return one_text("metric", name); };
}

Metric::Description metric_text(const losses::Loss& loss) {
  return [loss] { return one_text("loss", loss.to_text()); };
}

Metric Metric::named(const std::string& function, const Metric& metric) {
  return metric.described([function] { return one_text("function", function); });
}

Metric Metric::from_text(const std::string& text) {
  const auto all = lockstep::internal::parse_structure(text, kWhat);
  OptionsReader reader{all, kWhat, "a metric", {"options"}};
  std::string kind, loss, function, name;
  reader("metric", kind), reader("loss", loss), reader("function", function), reader("name", name);
  reader.end();
  if (!loss.empty()) return Metric(losses::Loss::from_text(loss)).renamed(name);
  if (!function.empty()) return named(function, Metric(name, losses::function_by_name(function)));
  return (all.contains("options") ? built_in(kind, lockstep::internal::structure_in(all, "options", kWhat)) : Metric(kind))
      .renamed(name);
}

}  // namespace lockstep::metrics
