#include <map>

#include "lockstep/base/error.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// What MirroredStrategy hands out of a dataset, step by step.

namespace lockstep::oracle {
namespace {

constexpr int kMostSteps = 10'000;

// The next step as the case asks for it; at the end nothing, and `end` says how it ended.
std::optional<DistributedIterator::Batch> next_step(DistributedIterator& iterator, const std::string& how, Json& end) {
  if (how == "next") {
    end = "StopIteration";
    return iterator.next();
  }
  if (how == "optional") {
    end = "no_value";
    const auto batch = iterator.get_next_as_optional();
    return batch.has_value() ? std::optional(batch.get_value()) : std::nullopt;
  }
  if (how != "get_next") throw NotApplicable("needs iteration by " + how);
  try {
    return iterator.get_next();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfRange) throw;
    end = "OutOfRangeError";
    return std::nullopt;
  }
}

Json steps_of(const DistributedDataset& dataset, const std::string& how) {
  auto iterator = dataset.make_iterator();
  Json steps = Json::array();
  Json end;
  while (const auto batch = next_step(iterator, how, end)) {
    steps.push_back(to_json(*batch));
    if (steps.size() > kMostSteps) throw std::runtime_error("the dataset does not end");
  }
  return {{"steps", std::move(steps)}, {"end", end}};
}

Json distribute_dataset(const Case& one) {
  auto& strategy = mirrored(one.input.at("replicas").get<int>());
  const auto dataset =
      build_pipeline(one.input.at("pipeline")).with_options({to_policy(get_or<std::string>(one.input, "policy", "AUTO"))});
  return steps_of(strategy.experimental_distribute_dataset(dataset), get_or<std::string>(one.input, "how", "next"));
}

Json distribute_from_function(const Case& one) {
  auto& strategy = mirrored(one.input.at("replicas").get<int>());
  Json contexts = Json::array();
  const auto dataset = strategy.distribute_datasets_from_function([&](const InputContext& context) {
    contexts.push_back({{"num_input_pipelines", context.num_input_pipelines},
                        {"input_pipeline_id", context.input_pipeline_id},
                        {"num_replicas_in_sync", context.num_replicas_in_sync}});
    return build_pipeline(one.input.at("pipeline"));
  });
  auto answer = steps_of(dataset, get_or<std::string>(one.input, "how", "next"));
  answer["contexts"] = std::move(contexts);
  return answer;
}

at::Tensor int_scalar(int value) { return at::scalar_tensor(value, at::kInt); }

// Replica i's value of each kind, as the oracle's README lists them.
Json distribute_values(const Case& one) {
  using Context = ValueContext;
  auto& strategy = mirrored(one.input.at("replicas").get<int>());
  const auto kind = one.input.at("kind").get<std::string>();
  const auto base = one.input.at("base").get<int>();
  const auto local_results = [&](auto value_fn) -> Json {
    const auto values = strategy.experimental_distribute_values_from_function(value_fn);
    return {{"local_results", list_to_json(strategy.experimental_local_results(values))}};
  };
  if (kind == "scalar")
    return local_results([&](const Context& c) { return at::scalar_tensor(base * c.replica_id_in_sync_group, at::kFloat); });
  if (kind == "vector")
    return local_results([&](const Context& c) { return at::arange(base, base + c.replica_id_in_sync_group + 1, at::kInt); });
  if (kind == "tuple")
    return local_results([&](const Context& c) {
      return Nest{std::vector<Nest>{{int_scalar(c.replica_id_in_sync_group)}, {int_scalar(c.num_replicas_in_sync)}}};
    });
  if (kind == "dict")
    return local_results([&](const Context& c) {
      return Nest{std::vector<Nest>{{int_scalar(c.replica_id_in_sync_group)}, {int_scalar(base)}}, {"id", "n"}};
    });
  if (kind == "same_object") return local_results([](const Context&) { return Json(7); });
  throw NotApplicable("needs values of kind " + kind);
}

}  // namespace

Json answer_rebatch(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {
      {"", distribute_dataset},
      {"distribute_datasets_from_function", distribute_from_function},
      {"experimental_distribute_values_from_function", distribute_values}};
  return call_api(apis, one);
}

std::optional<Difference> difference_in_rebatch(const Case& one) {
  const auto policy = get_or<std::string>(one.input, "policy", "");
  const bool is_split_by_data = policy == "AUTO" || policy == "DATA";
  if (!is_split_by_data || one.input.at("replicas").get<int>() < 2 || one.balanced.is_null()) return std::nullopt;
  auto ours = one.asked();
  ours["steps"] = one.balanced;
  return Difference{"A4: every batch is split alone, into parts that differ by at most one row",
                    {{{"expect", std::move(ours)}}}};
}

}  // namespace lockstep::oracle
