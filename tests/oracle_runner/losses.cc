#include "lockstep/train/loss.h"

#include <ATen/ATen.h>

#include <map>

#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// The loss helpers, outside every strategy, across replicas, and in each replica.

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

}  // namespace

Json answer_losses(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"compute_average_loss", average_loss},
                                                                    {"scale_regularization_loss", regularization_loss}};
  return call_api(apis, one);
}

}  // namespace lockstep::oracle
