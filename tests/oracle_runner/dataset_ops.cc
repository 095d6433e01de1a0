#include "lockstep/base/error.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// What dataset pipelines yield, and their cardinality.

namespace lockstep::oracle {
namespace {

bool is_negative_take(const Json& operation) {
  return operation.at("op") == "take" && operation.at("count").get<std::int64_t>() < -1;
}

Json reduce(const Case& one, const data::Dataset& dataset) {
  const auto name = one.input.at("reduce").get<std::string>();
  require_state_function(name);
  const auto value = dataset.reduce(
      data::Element(to_tensor(one.input.at("state"), "int64")),
      [&](const data::Element& state, const data::Element& element) { return next_state(name, state, element); });
  return {{"value", to_json(value)}};
}

}  // namespace

Json answer_dataset_ops(const Case& one) {
  const auto dataset = build_pipeline(one.input.at("pipeline"));
  if (one.input.contains("reduce")) return reduce(one, dataset);
  const auto limit = one.input.at("limit").get<std::size_t>();
  Json answer = {{"elements", Json::array()}, {"cardinality", dataset.cardinality()}};
  try {
    auto iterator = dataset.make_iterator();
    while (answer["elements"].size() < limit) {
      const auto element = iterator.next();
      if (!element) break;
      answer["elements"].push_back(to_json(*element));
    }
  } catch (const Error& error) {
    answer["error"] = {{"code", name_of(error.code())}, {"message", error.what()}};
  }
  answer["limit_reached"] = answer["elements"].size() == limit;
  return answer;
}

std::optional<Difference> difference_in_dataset_ops(const Case& one) {
  if (any_operation(one.input.at("pipeline"), is_negative_take))
    return Difference{"A8: take of less than -1 elements is a mistake", {{{"error", {{"code", "kInvalidArgument"}}}}}};
  return std::nullopt;
}

}  // namespace lockstep::oracle
