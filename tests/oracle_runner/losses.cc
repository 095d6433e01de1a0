#include "lockstep/train/loss.h"

#include <ATen/ATen.h>

#include <map>

#include "lockstep/train/losses/losses.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// The loss helpers, outside every strategy, across replicas, and in each replica; and the losses, with every reduction.

namespace lockstep::oracle {
namespace {

// fn's value in the case's context.
template <typename F>
Json in_context(const Json& input, F&& fn) {
  const int replicas = input.at("replicas").get<int>();
  if (replicas == 0) return {{"value", to_json(fn())}};
  if (get_or<std::string>(input, "context", "") == "cross") {
    const auto scope = mirrored(replicas).scope();
    return {{"value", to_json(fn())}};
  }
  return {{"value", {{"replicas", to_json(mirrored(replicas).run(fn))}}}};
}

Json average_loss(const Case& one) {
  const auto size = get_or<Json>(one.input, "global_batch_size", nullptr);
  if (!size.is_null() && !size.is_number_integer())
    throw NotApplicable("refused at compile time: a global_batch_size that is not an integer");
  const auto global_batch_size = size.is_null() ? std::nullopt : std::optional(size.get<std::int64_t>());
  const auto loss = to_tensor(one.input.at("per_example_loss"));
  const auto weight = get_or<Json>(one.input, "sample_weight", nullptr);
  if (weight.is_null()) return in_context(one.input, [&] { return compute_average_loss(loss, global_batch_size); });
  const auto weights = to_tensor(weight);
  return in_context(one.input, [&] { return compute_average_loss(loss, weights, global_batch_size); });
}

Json regularization_loss(const Case& one) {
  const auto loss = to_tensor(one.input.contains("loss") ? one.input["loss"] : one.input.at("per_example_loss"));
  return in_context(one.input, [&] { return scale_regularization_loss(loss); });
}

std::optional<std::int64_t> optional_integer(const Json& arguments, const char* key) {
  const auto value = get_or<Json>(arguments, key, nullptr);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

// Those with arguments of their own.
std::optional<Loss> configured_loss(const std::string& name, const Json& given) {
  const bool from_logits = get_or(given, "from_logits", false);
  const double label_smoothing = get_or(given, "label_smoothing", 0.0);
  const auto axis = get_or(given, "axis", std::int64_t{-1});
  const double alpha = get_or(given, "alpha", 0.25);
  const double gamma = get_or(given, "gamma", 2.0);
  if (name == "BinaryCrossentropy")
    return binary_crossentropy({.from_logits = from_logits, .label_smoothing = label_smoothing, .axis = axis});
  if (name == "CategoricalCrossentropy")
    return categorical_crossentropy({.from_logits = from_logits, .label_smoothing = label_smoothing, .axis = axis});
  if (name == "SparseCategoricalCrossentropy")
    return sparse_categorical_crossentropy(
        {.from_logits = from_logits, .ignore_class = optional_integer(given, "ignore_class"), .axis = axis});
  if (name == "BinaryFocalCrossentropy")
    return binary_focal_crossentropy({.apply_class_balancing = get_or(given, "apply_class_balancing", false),
                                      .alpha = alpha,
                                      .gamma = gamma,
                                      .from_logits = from_logits,
                                      .label_smoothing = label_smoothing,
                                      .axis = axis});
  if (name == "CategoricalFocalCrossentropy")
    return categorical_focal_crossentropy(
        {.alpha = alpha, .gamma = gamma, .from_logits = from_logits, .label_smoothing = label_smoothing, .axis = axis});
  if (name == "Huber") return huber({.delta = get_or(given, "delta", 1.0)});
  if (name == "CosineSimilarity") return cosine_similarity({.axis = axis});
  if (name == "Dice") return dice({.axis = optional_integer(given, "axis")});
  if (name == "Tversky")
    return tversky(
        {.alpha = get_or(given, "alpha", 0.5), .beta = get_or(given, "beta", 0.5), .axis = optional_integer(given, "axis")});
  if (name == "CategoricalGeneralizedCrossEntropy")
    return losses::categorical_generalized_cross_entropy({.q = get_or(given, "q", 0.5)});
  return std::nullopt;
}

Json reduced_loss(const Case& one) {
  static const std::map<std::string, Reduction> reductions = {{"none", Reduction::kNone},
                                                              {"sum", Reduction::kSum},
                                                              {"sum_over_batch_size", Reduction::kSumOverBatchSize},
                                                              {"mean", Reduction::kMean},
                                                              {"mean_with_sample_weight", Reduction::kMeanWithSampleWeight}};
  const auto name = one.input.at("loss").get<std::string>();
  const auto configured = configured_loss(name, one.input.at("arguments"));
  if (!configured && !one.input["arguments"].empty()) throw NotApplicable("needs arguments of " + name);
  const auto loss = configured ? *configured : Loss(name);
  const auto y_true = to_tensor(one.input.at("y_true"));
  const auto y_pred = to_tensor(one.input.at("y_pred"));
  const auto weight = get_or<Json>(one.input, "sample_weight", nullptr);
  const auto sample_weight = weight.is_null() ? at::Tensor() : to_tensor(weight);
  Json answer = Json::object();
  for (const auto& [text, reduction] : reductions)
    if (one.asked().is_null() || one.asked().contains(text))
      answer[text] = to_json(loss.with_reduction(reduction)(y_true, y_pred, sample_weight));
  return answer;
}

}  // namespace

Json answer_losses(const Case& one) {
  if (one.input.contains("loss") && !one.input.contains("api")) return reduced_loss(one);
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"compute_average_loss", average_loss},
                                                                    {"scale_regularization_loss", regularization_loss}};
  return call_api(apis, one);
}

}  // namespace lockstep::oracle
