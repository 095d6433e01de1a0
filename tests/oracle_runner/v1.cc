#include "tests/oracle_runner/v1.h"

#include <map>
#include <memory>
#include <type_traits>

#include "lockstep/strategy/strategy_extended.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// compat.v1's MirroredStrategy. What is about input stands in v1_input.cc.

namespace lockstep::oracle {
namespace {

PerReplica<at::Tensor> values_of(const Case& one) { return PerReplica<at::Tensor>(to_tensors(one.input.at("values"))); }

Json reduce(const Case& one) {
  return with_values(one.input.at("values"), [&](const auto& values) -> Json {
    return {{"value", to_json(first_version(one).reduce(one.input.at("op").get<std::string>(), values))}};
  });
}

Json reduce_without_axis(const Case&) {
  throw NotApplicable("Python only (A6): reduce() of the second version without its axis, which has a default in C++");
}

Json copy(const Case&) {
  static_assert(!std::is_copy_constructible_v<compat::v1::MirroredStrategy>);
  throw NotApplicable("refused at compile time: a copy of a strategy");
}

// The plain value and the structure's second part are the generator's.
Json local_results(const Case& one) {
  auto& strategy = first_version(one);
  const auto values = values_of(one);
  const auto scalar = [](float value) { return at::scalar_tensor(value, at::kFloat); };
  Json nested = Json::array();
  for (const auto& [a, b] : strategy.experimental_local_results(std::pair(values, scalar(1))))
    nested.push_back({{"a", to_json(a)}, {"b", to_json(b)}});
  return {{"per_replica", list_to_json(strategy.experimental_local_results(values))},
          {"plain", list_to_json(strategy.experimental_local_results(scalar(5)))},
          {"nested", std::move(nested)},
          {"unwrap", list_to_json(strategy.unwrap(values))}};
}

Json update_config_proto(const Case& one) {
  const compat::v1::ConfigProto config{.inter_op_parallelism_threads = one.input.at("inter_op_parallelism_threads").get<int>()};
  const auto updated = first_version(one).update_config_proto(config);
  return {{"isolate_session_state", updated.isolate_session_state},
          {"input_isolate_session_state", config.isolate_session_state},
          {"inter_op_parallelism_threads", updated.inter_op_parallelism_threads},
          {"same_object", &updated == &config}};
}

Json extended_properties(const Case& one) {
  auto& strategy = first_version(one);
  const auto& extended = strategy.extended();
  return {{"worker_devices", extended.worker_devices()},
          {"parameter_devices", extended.parameter_devices()},
          {"experimental_between_graph", extended.experimental_between_graph()},
          {"should_checkpoint", extended.should_checkpoint()},
          {"should_save_summary", extended.should_save_summary()},
          {"experimental_should_init", extended.experimental_should_init()},
          {"experimental_require_static_shapes", extended.experimental_require_static_shapes()},
          {"num_replicas_in_sync", strategy.num_replicas_in_sync()}};
}

// A variable to which something is added, and every way to see what it became.
Json extended_updates(const Case& one) {
  auto& strategy = first_version(one);
  auto& extended = strategy.extended();
  auto variable = [&] {
    const auto scope = strategy.scope();
    return Variable(to_tensor(one.input.at("initial")));
  }();
  const auto read = [&](at::Tensor&) { return variable.value().clone(); };
  extended.update(
      variable, [&](at::Tensor&, const at::Tensor& added) { variable.assign_add(added); }, to_tensor(one.input.at("added")));
  const auto results = extended.update(variable, read);
  const auto devices = extended.non_slot_devices({variable});
  return {{"components", list_to_json(variable.components())},
          {"update_results", results.size()},
          {"non_slot_devices", devices},
          {"update_non_slot", to_json(extended.update_non_slot(devices, [&] { return variable.value().clone(); }))},
          {"read_var", to_json(extended.read_var(variable))},
          {"call_for_each_replica", to_json(extended.call_for_each_replica([&] { return variable.value().clone(); }))}};
}

// A step's parts, all of one structure, with the rows of each leaf cut anew.
Json balanced_step(const Json& parts) {
  const auto& first = parts.at(0);
  Json cut = parts;
  if (is_tensor(first)) {
    std::vector<at::Tensor> filled;  // a part without rows may have lost its other dimensions
    for (const auto& tensor : to_tensors(parts))
      if (tensor.size(0) > 0) filled.push_back(tensor);
    if (filled.empty()) return parts;
    const auto rows = at::tensor_split(at::cat(filled), static_cast<std::int64_t>(parts.size()));
    for (std::size_t r = 0; r < parts.size(); ++r) cut[r] = to_json(rows[r]);
    return cut;
  }
  for (const auto& [key, leaf] : first.items()) {
    const Json::json_pointer at("/" + key);
    Json leaves = Json::array();
    for (const auto& part : parts) leaves.push_back(part.at(at));
    const auto balanced = balanced_step(leaves);
    for (std::size_t r = 0; r < parts.size(); ++r) cut[r][at] = balanced[r];
  }
  return cut;
}

}  // namespace

compat::v1::MirroredStrategy& first_version(const Case& one) {
  static std::map<int, std::unique_ptr<compat::v1::MirroredStrategy>> made;
  const auto replicas = one.input.at("replicas").get<int>();
  auto& strategy = made[replicas];
  if (!strategy) {
    std::vector<std::string> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
    strategy = std::make_unique<compat::v1::MirroredStrategy>(devices);
  }
  return *strategy;
}

Json balanced_steps(const Json& steps) {
  Json cut = Json::array();
  for (const auto& parts : steps) cut.push_back(balanced_step(parts));
  return cut;
}

Json answer_v1(const Case& one) {
  static const auto apis = [] {
    auto all = v1_input_apis();
    all.insert({{"reduce", reduce},
                {"reduce_v2_without_axis", reduce_without_axis},
                {"copy", copy},
                {"experimental_local_results", local_results},
                {"update_config_proto", update_config_proto},
                {"extended_properties", extended_properties},
                {"extended_updates", extended_updates}});
    return all;
  }();
  return call_api(apis, one);
}

std::optional<Difference> difference_in_v1(const Case& one) {
  const auto api = get_or<std::string>(one.input, "api", "");
  if (api == "reduce") return difference_in_reduce(one);
  const bool is_cut = api == "make_dataset_iterator" || api == "experimental_run";
  if (!is_cut || !one.outcome.contains("expect") || one.input.at("replicas").get<int>() < 2) return std::nullopt;
  const auto policy = build_pipeline(one.input.at("pipeline")).options().auto_shard_policy;
  if (policy != AutoShardPolicy::kAuto && policy != AutoShardPolicy::kData) return std::nullopt;
  auto ours = one.asked();
  // experimental_run's functions work row by row.
  for (const char* key : {"first", "second"})
    if (ours.contains(key)) ours[key] = balanced_steps(Json::array({ours[key]})).at(0);
  for (const char* key : {"steps", "after_initialize_again"})
    if (ours.contains(key)) ours[key] = balanced_steps(ours[key]);
  return Difference{"A4: every batch is split alone, into parts that differ by at most one row",
                    {{{"expect", std::move(ours)}}}};
}

}  // namespace lockstep::oracle
