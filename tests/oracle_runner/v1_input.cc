#include <cstdio>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/data/options.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/v1.h"
#include "tests/oracle_runner/values.h"

// compat.v1's iterators, the functions that run on them, datasets of arrays, and what input functions are told.

namespace lockstep::oracle {
namespace {

constexpr std::size_t kMostSteps = 10'000;

// The steps of a pass from its beginning; `end` says how it ended.
Json pass_of(compat::v1::InputIterator& iterator, Json& end) {
  iterator.initialize();
  Json steps = Json::array();
  try {
    while (steps.size() <= kMostSteps) steps.push_back(to_json(iterator.get_next()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfRange) throw;
    end = "OutOfRangeError";
    return steps;
  }
  throw std::runtime_error("the dataset does not end");
}

Json make_dataset_iterator(const Case& one) {
  auto iterator = first_version(one).make_dataset_iterator(build_pipeline(one.input.at("pipeline")));
  Json answer, end;
  answer["steps"] = pass_of(iterator, end);
  answer["end"] = end;
  answer["after_initialize_again"] = pass_of(iterator, end);
  return answer;
}

// What the generator's function wrote down: also a replica's part of 6 rows, and of those that a field's name says.
Json describe(const InputContext& context, const Json& asked) {
  std::ostringstream text;
  text << context;
  const auto batch_size = [&](std::int64_t rows) {
    return field([&] { return Json(context.get_per_replica_batch_size(rows)); });
  };
  Json told = {{"num_input_pipelines", context.num_input_pipelines},
               {"input_pipeline_id", context.input_pipeline_id},
               {"num_replicas_in_sync", context.num_replicas_in_sync},
               {"text", text.str()},
               {"per_replica_batch_size", batch_size(6)}};
  long rows = 0;
  if (asked.is_object())
    for (const auto& [key, value] : asked.items())
      if (std::sscanf(key.c_str(), "per_replica_batch_size_of_%ld", &rows) == 1) told[key] = batch_size(rows);
  return told;
}

Json make_input_fn_iterator(const Case& one) {
  const auto mode = get_or<std::string>(one.input, "mode", "PER_WORKER");
  if (mode != "PER_WORKER" && mode != "PER_REPLICA") throw NotApplicable("needs the replication mode " + mode);
  const Json::json_pointer first("/contexts/0");
  const auto asked = one.asked().contains(first) ? one.asked().at(first) : Json();
  Json contexts = Json::array();
  const auto input_fn = [&](const InputContext& context) {
    contexts.push_back(describe(context, asked));
    return build_pipeline(one.input.at("pipeline"));
  };
  auto iterator = first_version(one).make_input_fn_iterator(
      input_fn, mode == "PER_WORKER" ? InputReplicationMode::kPerWorker : InputReplicationMode::kPerReplica);
  Json end;
  auto steps = pass_of(iterator, end);
  return {{"contexts", std::move(contexts)}, {"steps", std::move(steps)}, {"end", end}};
}

// "x * 2", "x + 1", "x - 3", or "replica id" without an x.
at::Tensor call(const std::string& function, const at::Tensor& x) {
  char sign = 0;
  long number = 0;
  if (std::sscanf(function.c_str(), "x %c %ld", &sign, &number) == 2) {
    if (sign == '*') return x * number;
    if (sign == '+') return x + number;
    if (sign == '-') return x - number;
  }
  throw NotApplicable("needs the function " + function);
}

Json experimental_run(const Case& one) {
  auto& strategy = first_version(one);
  const auto functions = one.input.at("functions").get<std::vector<std::string>>();
  if (functions.at(2) != "replica id") throw NotApplicable("needs the function " + functions[2]);
  auto iterator = strategy.make_dataset_iterator(build_pipeline(one.input.at("pipeline")));
  iterator.initialize();
  const auto on_step = [&](const std::string& function) {
    return to_json(strategy.experimental_run([&](const at::Tensor& x) { return call(function, x); }, iterator));
  };
  Json answer;
  answer["first"] = on_step(functions.at(0));
  answer["second"] = on_step(functions.at(1));
  answer["without_input"] = to_json(strategy.experimental_run(
      [](ReplicaContext& context) { return at::scalar_tensor(context.replica_id_in_sync_group(), at::kInt); }));
  return answer;
}

void add_components(const Json& value, const std::string& name, std::vector<data::Component>& all) {
  if (is_tensor(value)) {
    if (value.at("dtype") != "string") return all.push_back({name, to_tensor(value)});
    return all.push_back({name, data::Bytes{value.at("data").get<std::vector<std::string>>(),
                                            value.at("shape").get<std::vector<std::int64_t>>()}});
  }
  for (const auto& [key, item] : value.items())
    add_components(item, value.is_object() ? (name.empty() ? key : name + "." + key) : name, all);
}

data::Dataset numpy_dataset(const Case& one) {
  auto& strategy = first_version(one);
  const auto& input = one.input.at("input");
  // A tuple and a list are both JSON lists; what an element looks like tells them apart.
  const Json::json_pointer first("/elements/0");
  const bool is_tuple = one.asked().contains(first) && one.asked().at(first).is_array();
  if (input.is_array() && !is_tuple) return strategy.experimental_make_numpy_dataset(to_tensors(input));
  if (is_tensor(input) && input.at("dtype") != "string") return strategy.experimental_make_numpy_dataset(to_tensor(input));
  std::vector<data::Component> components;
  add_components(input, "", components);
  return strategy.experimental_make_numpy_dataset(data::Element(std::move(components)));
}

Json make_numpy_dataset(const Case& one) {
  Json elements = Json::array();
  for (const auto& element : numpy_dataset(one)) elements.push_back(to_json(element));
  return {{"elements", std::move(elements)}};
}

Json per_replica_batch_size(const Case& one) {
  InputContext context;
  context.num_replicas_in_sync = one.input.at("num_replicas_in_sync").get<int>();
  return {{"value", context.get_per_replica_batch_size(one.input.at("global_batch_size").get<std::int64_t>())}};
}

// The defaults, and the printed form of the generator's pipeline 2 of 3.
Json input_context(const Case&) {
  const InputContext context;
  std::ostringstream text;
  text << InputContext{.num_input_pipelines = 3, .input_pipeline_id = 2};
  return {{"num_input_pipelines", context.num_input_pipelines},
          {"input_pipeline_id", context.input_pipeline_id},
          {"num_replicas_in_sync", context.num_replicas_in_sync},
          {"text", text.str()}};
}

}  // namespace

const std::map<std::string, Json (*)(const Case&)>& v1_input_apis() {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"make_dataset_iterator", make_dataset_iterator},
                                                                    {"make_input_fn_iterator", make_input_fn_iterator},
                                                                    {"experimental_run", experimental_run},
                                                                    {"experimental_make_numpy_dataset", make_numpy_dataset},
                                                                    {"get_per_replica_batch_size", per_replica_batch_size},
                                                                    {"InputContext", input_context}};
  return apis;
}

}  // namespace lockstep::oracle
