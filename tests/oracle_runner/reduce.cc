#include <algorithm>
#include <cctype>
#include <map>

#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Reductions, gathers and merges of per-replica values.

namespace lockstep::oracle {
namespace {

MirroredStrategy& strategy_of(const Case& one) { return mirrored(one.input.at("replicas").get<int>()); }
std::string op_of(const Case& one) { return one.input.at("op").get<std::string>(); }
const Json& values_of(const Case& one) { return one.input.at("values"); }

Axis axis_of(const Json& input) {
  const auto& axis = input.at("axis");
  if (axis.is_null()) return {};
  if (get_or<std::string>(input, "axis_is", "") == "list") throw NotApplicable("Python only (A6): a list as axis");
  if (axis.is_string()) throw NotApplicable("refused at compile time: an axis that is not an integer");
  return axis.is_array() ? Axis(axis.get<std::vector<std::int64_t>>()) : Axis(axis.get<std::int64_t>());
}

Json reduce(const Case& one) {
  const auto axis = axis_of(one.input);
  return with_values(values_of(one), [&](const auto& values) -> Json {
    return {{"value", to_json(strategy_of(one).reduce(op_of(one), values, axis))}};
  });
}

Json reduce_plain(const Case& one) {
  const auto& value = one.input.at("value");
  const auto axis = axis_of(one.input);
  if (!value.is_number()) return {{"value", to_json(strategy_of(one).reduce(op_of(one), to_tensor(value), axis))}};
  if (value.is_number_integer() && value == 0) throw NotApplicable("Python only (A6): the number 0, which has no shape");
  return {{"value", strategy_of(one).reduce(op_of(one), value.get<double>())}};
}

// How many rows the dense form has: the input's IndexedSlices do not say it.
std::int64_t dense_rows(const Case& one) {
  const auto rows = [&](const Json::json_pointer& where) -> std::int64_t {
    return one.asked().contains(where) ? one.asked().at(where).get<std::int64_t>() : 0;
  };
  const auto gathered = rows("/value/shape/0"_json_pointer);  // of all replicas
  return gathered > 0 ? gathered / one.input.at("replicas").get<int>() : rows("/replicas/0/shape/0"_json_pointer);
}

Json all_reduce(const Case& one) {
  const bool is_dense = get_or(one.input, "densify", false);
  const auto op = op_of(one);
  const auto call = [&](const auto& values) -> Json {
    const auto results = strategy_of(one).run(
        [&](ReplicaContext& context, const auto& value) -> Json {
          const auto reduced = context.all_reduce(op, value);
          if constexpr (requires { to_dense(reduced); }) {
            if (is_dense) return to_json(to_dense(reduced));
          }
          return to_json(reduced);
        },
        values);
    return {{"replicas", to_json(results)}};
  };
  return with_values(values_of(one), call, is_dense ? dense_rows(one) : 0);
}

Json all_gather(const Case& one) {
  const auto axis = one.input.at("axis").get<std::int64_t>();
  return with_values(values_of(one), [&](const auto& values) -> Json {
    const auto results = strategy_of(one).run(
        [&](ReplicaContext& context, const auto& value) { return context.all_gather(value, axis); }, values);
    return {{"replicas", to_json(results)}};
  });
}

Json gather(const Case& one) {
  const auto axis = one.input.at("axis").get<std::int64_t>();
  const auto call = [&](const auto& values) -> Json { return {{"value", to_json(strategy_of(one).gather(values, axis))}}; };
  return with_values(values_of(one), call, dense_rows(one));
}

Json gather_plain(const Case& one) {
  const auto axis = one.input.at("axis").get<std::int64_t>();
  return {{"value", to_json(strategy_of(one).gather(to_tensor(one.input.at("value")), axis))}};
}

template <typename T>
Json reduce_values_to(const Case& one, const PerReplica<T>& values) {
  const auto name = one.input.at("destination").get<std::string>();
  const auto destination = name == "same" ? Destinations(values) : Destinations(name);
  return {{"components", to_json(strategy_of(one).extended().reduce_to(op_of(one), values, destination))}};
}

Json reduce_to(const Case& one) {
  return with_values(values_of(one), [&](const auto& values) -> Json {
    if constexpr (std::is_same_v<std::decay_t<decltype(values)>, PerReplica<Nest>>)
      throw NotApplicable("needs reduce_to of structures");
    else return reduce_values_to(one, values);
  });
}

Json batch_reduce_to(const Case& one) {
  std::vector<StrategyExtended::ValueAndDestinations> pairs;
  for (const auto& values : values_of(one)) {
    const PerReplica<at::Tensor> value(to_tensors(values));
    pairs.emplace_back(value, Destinations(value));
  }
  return {{"components", list_to_json(strategy_of(one).extended().batch_reduce_to(op_of(one), pairs))}};
}

Json broadcast_to(const Case& one) {
  auto& extended = strategy_of(one).extended();
  const auto& value = one.input.at("value");
  if (value.is_number()) return {{"components", {extended.broadcast_to(value.get<double>())}}};
  return {{"components", to_json(extended.broadcast_to(to_tensor(value)))}};
}

Json merge_call_reduce(const Case& one) {
  const auto op = op_of(one);
  const auto merge = [&](Strategy& strategy, const PerReplica<at::Tensor>& values) { return strategy.reduce(op, values); };
  const auto results =
      strategy_of(one).run([&](ReplicaContext& context, const at::Tensor& value) { return context.merge_call(merge, value); },
                           PerReplica<at::Tensor>(to_tensors(values_of(one))));
  return {{"replicas", to_json(results)}};
}

// y = collective(v) * (1 + replica id); the gradient of y by v.
template <typename F>
Json gradients(const Case& one, F&& collective) {
  const auto results = strategy_of(one).run(
      [&](ReplicaContext& context, const at::Tensor& value) {
        const auto v = value.clone().set_requires_grad(true);
        const auto y = collective(context, v) * (1 + context.replica_id_in_sync_group());
        y.sum().backward();
        return v.grad();
      },
      PerReplica<at::Tensor>(to_tensors(values_of(one))));
  return {{"replicas", to_json(results)}};
}

Json all_reduce_gradient(const Case& one) {
  return gradients(one, [op = op_of(one)](ReplicaContext& context, const at::Tensor& v) { return context.all_reduce(op, v); });
}

Json all_gather_gradient(const Case& one) {
  const auto axis = one.input.at("axis").get<std::int64_t>();
  return gradients(one, [axis](ReplicaContext& context, const at::Tensor& v) { return context.all_gather(v, axis); });
}

// The same value with integer tensors as float64; the indices of IndexedSlices stay what they are.
Json with_float64(const Json& value) {
  Json changed = value;
  if (is_tensor(value)) {
    if (value.at("dtype").get<std::string>().find("int") != std::string::npos) changed["dtype"] = "float64";
    return changed;
  }
  if (!value.is_structured()) return value;
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) changed[std::stoul(key)] = with_float64(item);
    else if (key != "indices") changed[key] = with_float64(item);
  }
  return changed;
}

}  // namespace

Json answer_reduce(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"reduce", reduce},
                                                                    {"reduce_plain", reduce_plain},
                                                                    {"all_reduce", all_reduce},
                                                                    {"all_gather", all_gather},
                                                                    {"gather", gather},
                                                                    {"gather_plain", gather_plain},
                                                                    {"reduce_to", reduce_to},
                                                                    {"batch_reduce_to", batch_reduce_to},
                                                                    {"broadcast_to", broadcast_to},
                                                                    {"merge_call_reduce", merge_call_reduce},
                                                                    {"all_reduce_gradient", all_reduce_gradient},
                                                                    {"all_gather_gradient", all_gather_gradient}};
  return call_api(apis, one);
}

std::optional<Difference> difference_in_reduce(const Case& one) {
  auto op = get_or<std::string>(one.input, "op", "");
  std::ranges::transform(op, op.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (one.input.contains("values") && op == "MEAN" && one.input.at("replicas") == 1 && one.outcome.contains("expect"))
    return Difference{"A8: a mean of integers is float64 for one replica too", {with_float64(one.outcome)}};
  const auto value = get_or<Json>(one.input, "value", nullptr);
  if (value.is_number() && is_tensor(get_or<Json>(one.asked(), "value", nullptr)))
    return Difference{"A2: a C++ number is reduced to a number, not to a tensor",
                      {{{"expect", {{"value", one.asked().at("value").at("data").at(0)}}}}}};
  return std::nullopt;
}

}  // namespace lockstep::oracle
