#include "lockstep/train/metrics/metrics.h"

#include <ATen/ATen.h>

#include <map>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Metrics after each update, in one place, and with the updates dealt to replicas.

namespace lockstep::oracle {
namespace {

std::optional<std::int64_t> optional_integer(const Json& given, const char* key) {
  const auto value = get_or<Json>(given, key, nullptr);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

// A number or a list of them.
std::vector<double> numbers(const Json& given, const char* key) {
  const auto value = get_or<Json>(given, key, nullptr);
  if (value.is_null()) return {};
  return value.is_array() ? value.get<std::vector<double>>() : std::vector<double>{value.get<double>()};
}

std::optional<double> optional_number(const Json& given, const char* key) {
  const auto value = get_or<Json>(given, key, nullptr);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

at::ScalarType weight_dtype(const Json& given) {
  const auto name = get_or<std::string>(given, "dtype", "int");
  if (name.find("int") == 0) return at::kInt;
  return name == "float64" ? at::kDouble : at::kFloat;
}

using Make = Metric (*)(const Json& given);
using Makers = std::map<std::string, Make>;

const Makers kMeans = {
    {"Mean", [](const Json&) { return metrics::Mean(); }},
    {"Sum", [](const Json&) { return metrics::Sum(); }},
    {"Accuracy", [](const Json&) { return metrics::Accuracy(); }},
    {"BinaryAccuracy",
     [](const Json& given) { return metrics::BinaryAccuracy({.threshold = get_or(given, "threshold", 0.5)}); }},
    {"TopKCategoricalAccuracy",
     [](const Json& given) { return metrics::TopKCategoricalAccuracy({.k = get_or(given, "k", std::int64_t{5})}); }},
    {"SparseTopKCategoricalAccuracy",
     [](const Json& given) {
       return metrics::SparseTopKCategoricalAccuracy(
           {.k = get_or(given, "k", std::int64_t{5}), .from_sorted_ids = get_or(given, "from_sorted_ids", false)});
     }},
    {"CosineSimilarity",
     [](const Json& given) { return metrics::CosineSimilarity({.axis = get_or(given, "axis", std::int64_t{-1})}); }},
    {"PearsonCorrelation",
     [](const Json& given) { return metrics::PearsonCorrelation({.axis = get_or(given, "axis", std::int64_t{-1})}); }},
    {"ConcordanceCorrelation",
     [](const Json& given) { return metrics::ConcordanceCorrelation({.axis = get_or(given, "axis", std::int64_t{-1})}); }},
    {"BinaryCrossentropy",
     [](const Json& given) {
       return metrics::BinaryCrossentropy(
           {.from_logits = get_or(given, "from_logits", false), .label_smoothing = get_or(given, "label_smoothing", 0.0)});
     }},
    {"CategoricalCrossentropy",
     [](const Json& given) {
       return metrics::CategoricalCrossentropy({.from_logits = get_or(given, "from_logits", false),
                                                .label_smoothing = get_or(given, "label_smoothing", 0.0),
                                                .axis = get_or(given, "axis", std::int64_t{-1})});
     }},
    {"SparseCategoricalCrossentropy",
     [](const Json& given) {
       return metrics::SparseCategoricalCrossentropy({.from_logits = get_or(given, "from_logits", false),
                                                      .ignore_class = optional_integer(given, "ignore_class"),
                                                      .axis = get_or(given, "axis", std::int64_t{-1})});
     }},
    {"R2Score", [](const Json& given) {
       const bool is_each = given.contains("class_aggregation") && given["class_aggregation"].is_null();
       return metrics::R2Score(
           {.class_aggregation = is_each ? "" : get_or<std::string>(given, "class_aggregation", "uniform_average"),
            .num_regressors = get_or(given, "num_regressors", std::int64_t{0})});
     }}};

metrics::CountOptions count_options(const Json& given) { return {.thresholds = numbers(given, "thresholds")}; }

metrics::PrecisionOptions precision_options(const Json& given) {
  return {.thresholds = numbers(given, "thresholds"),
          .top_k = optional_integer(given, "top_k"),
          .class_id = optional_integer(given, "class_id")};
}

metrics::AtOptions at_options(const Json& given, const char* key) {
  return {.value = given.at(key).get<double>(),
          .num_thresholds = get_or(given, "num_thresholds", std::int64_t{200}),
          .class_id = optional_integer(given, "class_id")};
}

const Makers kCounts = {
    {"TruePositives", [](const Json& given) { return metrics::TruePositives(count_options(given)); }},
    {"TrueNegatives", [](const Json& given) { return metrics::TrueNegatives(count_options(given)); }},
    {"FalsePositives", [](const Json& given) { return metrics::FalsePositives(count_options(given)); }},
    {"FalseNegatives", [](const Json& given) { return metrics::FalseNegatives(count_options(given)); }},
    {"Precision", [](const Json& given) { return metrics::Precision(precision_options(given)); }},
    {"Recall", [](const Json& given) { return metrics::Recall(precision_options(given)); }},
    {"SensitivityAtSpecificity",
     [](const Json& given) { return metrics::SensitivityAtSpecificity(at_options(given, "specificity")); }},
    {"SpecificityAtSensitivity",
     [](const Json& given) { return metrics::SpecificityAtSensitivity(at_options(given, "sensitivity")); }},
    {"PrecisionAtRecall", [](const Json& given) { return metrics::PrecisionAtRecall(at_options(given, "recall")); }},
    {"RecallAtPrecision", [](const Json& given) { return metrics::RecallAtPrecision(at_options(given, "precision")); }},
    {"AUC", [](const Json& given) {
       return metrics::AUC({.num_thresholds = get_or(given, "num_thresholds", std::int64_t{200}),
                            .curve = get_or<std::string>(given, "curve", "ROC"),
                            .summation_method = get_or<std::string>(given, "summation_method", "interpolation"),
                            .thresholds = numbers(given, "thresholds"),
                            .multi_label = get_or(given, "multi_label", false),
                            .num_labels = optional_integer(given, "num_labels"),
                            .label_weights = numbers(given, "label_weights"),
                            .from_logits = get_or(given, "from_logits", false)});
     }}};

metrics::IoUOptions iou_options(const Json& given) {
  return {.num_classes = get_or(given, "num_classes", std::int64_t{2}),
          .target_class_ids = get_or(given, "target_class_ids", std::vector<std::int64_t>()),
          .ignore_class = optional_integer(given, "ignore_class"),
          .sparse_y_true = get_or(given, "sparse_y_true", true),
          .sparse_y_pred = get_or(given, "sparse_y_pred", true),
          .axis = get_or(given, "axis", std::int64_t{-1}),
          .dtype = weight_dtype(given)};
}

metrics::OneHotIoUOptions one_hot_options(const Json& given) {
  return {.num_classes = get_or(given, "num_classes", std::int64_t{2}),
          .target_class_ids = get_or(given, "target_class_ids", std::vector<std::int64_t>()),
          .ignore_class = optional_integer(given, "ignore_class"),
          .sparse_y_pred = get_or(given, "sparse_y_pred", false),
          .axis = get_or(given, "axis", std::int64_t{-1}),
          .dtype = weight_dtype(given)};
}

const Makers kAreas = {
    {"F1Score",
     [](const Json& given) {
       return metrics::F1Score(
           {.average = get_or<std::string>(given, "average", ""), .threshold = optional_number(given, "threshold")});
     }},
    {"FBetaScore",
     [](const Json& given) {
       return metrics::FBetaScore({.average = get_or<std::string>(given, "average", ""),
                                   .beta = get_or(given, "beta", 1.0),
                                   .threshold = optional_number(given, "threshold")});
     }},
    {"IoU", [](const Json& given) { return metrics::IoU(iou_options(given)); }},
    {"MeanIoU", [](const Json& given) { return metrics::MeanIoU(iou_options(given)); }},
    {"OneHotIoU", [](const Json& given) { return metrics::OneHotIoU(one_hot_options(given)); }},
    {"OneHotMeanIoU", [](const Json& given) { return metrics::OneHotMeanIoU(one_hot_options(given)); }},
    {"BinaryIoU", [](const Json& given) {
       return metrics::BinaryIoU({.target_class_ids = get_or(given, "target_class_ids", std::vector<std::int64_t>{0, 1}),
                                  .threshold = get_or(given, "threshold", 0.5),
                                  .dtype = weight_dtype(given)});
     }}};

Metric make_metric(const Json& input) {
  const auto name = input.at("metric").get<std::string>();
  const auto& arguments = input.at("arguments");
  for (const auto* makers : {&kMeans, &kCounts, &kAreas})
    if (const auto found = makers->find(name); found != makers->end()) return found->second(arguments);
  if (!arguments.empty()) throw NotApplicable("needs arguments of " + name);
  return Metric(name);
}

void update(Metric& metric, const Json& input, std::size_t step) {
  std::vector<at::Tensor> given;
  for (const auto& argument : input.at("steps")[step]) given.push_back(to_tensor(argument));
  const auto weights = get_or<Json>(input, "sample_weights", nullptr);
  if (!weights.is_null() && !weights[step].is_null()) given.push_back(to_tensor(weights[step]));
  given.resize(3);
  metric.update_state(given[0], given[1], given[2]);
}

// TensorFlow's are float32.
Json number(const at::Tensor& value) { return to_json(value.to(at::kFloat)); }

Json over_replicas(const Case& one, int replicas, const Json& asked) {
  auto& strategy = mirrored(replicas);
  const auto scope = strategy.scope();
  auto metric = make_metric(one.input);
  strategy.run([&](ReplicaContext& context) {
    for (auto step = static_cast<std::size_t>(context.local_replica_id()); step < one.input.at("steps").size();
         step += static_cast<std::size_t>(replicas))
      update(metric, one.input, step);
  });
  Json answer = {{"result", number(metric.result())}};
  if (!asked.is_object() || !asked.contains("variables")) return answer;
  const auto names = metric.state().size();
  Json variables = Json::array();
  for (std::size_t v = 0; v < names; ++v) {
    Json parts = Json::array();
    for (int r = 0; r < replicas; ++r) parts.push_back(number(metric.replica_state(static_cast<std::size_t>(r)).at(v)));
    variables.push_back(parts);
  }
  answer["variables"] = variables;
  return answer;
}

}  // namespace

Json answer_metrics(const Case& one) {
  auto metric = make_metric(one.input);
  Json after_each_step = Json::array();
  for (std::size_t step = 0; step < one.input.at("steps").size(); ++step) {
    update(metric, one.input, step);
    after_each_step.push_back(number(metric.result()));
  }
  metric.reset_state();
  Json answer = {{"after_each_step", after_each_step}, {"after_reset", number(metric.result())}};
  for (const auto& [key, replicas] : {std::pair("over_2_replicas", 2), std::pair("over_3_replicas", 3)})
    if (!one.asked().is_object() || one.asked().contains(key))
      answer[key] = over_replicas(one, replicas, get_or<Json>(one.asked(), key, nullptr));
  return answer;
}

}  // namespace lockstep::oracle
