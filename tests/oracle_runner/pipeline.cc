#include "tests/oracle_runner/pipeline.h"

#include <map>

#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/values.h"

namespace lockstep::oracle {
namespace {

using data::Dataset;
using data::Element;

using Source = Dataset (*)(const Json& parameters);
using Operation = Dataset (*)(const Dataset& input, const Json& parameters);

// The data of from_tensors and from_tensor_slices: numbers, by default int64, or text.
Element to_element(const Json& parameters) {
  const auto dtype = get_or<std::string>(parameters, "dtype", "int64");
  const auto& data = parameters.at("data");
  if (is_tensor(data)) return Element(to_tensor(data));
  if (dtype != "string") return Element(to_tensor(data, dtype));
  data::Bytes bytes;
  bytes.values = data.get<std::vector<std::string>>();
  bytes.sizes = {static_cast<std::int64_t>(bytes.values.size())};
  return Element(std::vector<data::Component>{{"", std::move(bytes)}});
}

Dataset range(const Json& parameters) {
  const auto args = parameters.at("args").get<std::vector<std::int64_t>>();
  if (args.size() == 1) return Dataset::range(args[0]);
  return Dataset::range(args.at(0), args.at(1), args.size() > 2 ? args[2] : 1);
}

Dataset from_generator(const Json& parameters) {
  std::vector<at::Tensor> batches;
  for (const auto& batch : parameters.at("batches")) batches.push_back(to_tensor(batch, "int64"));
  return Dataset::from_generator([batches] {
    return [batches, next = std::size_t{0}]() mutable -> std::optional<Element> {
      if (next == batches.size()) return std::nullopt;
      return Element(batches[next++]);
    };
  });
}

// The case's files were written by write_files; names are theirs.
Dataset tf_record(const Json& parameters) {
  std::vector<std::string> paths;
  for (const auto& name : parameters.at("names")) paths.push_back(file_of(name.get<std::string>()));
  return Dataset::tf_record(paths);
}

Dataset zip(const Json& parameters) {
  std::vector<Dataset> inputs;
  for (const auto& input : parameters.at("inputs")) inputs.push_back(build_pipeline(input));
  return Dataset::zip(inputs);
}

Dataset padded_batch(const Dataset& input, const Json& p) {
  if (!get_or<Json>(p, "shapes", nullptr).is_null()) throw NotApplicable("needs padded_batch with shapes");
  if (!get_or<Json>(p, "value", nullptr).is_null()) throw NotApplicable("needs padded_batch with a padding value");
  return input.padded_batch(p.at("size"), get_or(p, "drop_remainder", false));
}

Dataset map(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_map_function(name);
  return input.map([name](const Element& element) { return map_element(name, element); });
}

Dataset filter(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_condition(name);
  return input.filter([name](const Element& element) { return holds_for(name, element); });
}

Dataset flat_map(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_dataset_function(name);
  return input.flat_map([name](const Element& element) { return dataset_from(name, element); });
}

Dataset shuffle(const Dataset& input, const Json& p) {
  const auto seed = get_or<Json>(p, "seed", nullptr);
  return input.shuffle(p.at("buffer_size"), seed.is_null() ? std::nullopt : std::optional(seed.get<std::uint64_t>()));
}

const std::map<std::string, Source> kSources = {
    {"range", range},
    {"from_tensors", [](const Json& p) { return Dataset::from_tensors(to_element(p)); }},
    {"from_tensor_slices", [](const Json& p) { return Dataset::from_tensor_slices(to_element(p)); }},
    {"from_generator", from_generator},
    {"tfrecord", tf_record},
    {"zip", zip},
};

const std::map<std::string, Operation> kOperations = {
    {"batch", [](const Dataset& d, const Json& p) { return d.batch(p.at("size"), get_or(p, "drop_remainder", false)); }},
    {"padded_batch", padded_batch},
    {"rebatch", [](const Dataset& d, const Json& p) { return d.rebatch(p.at("sizes"), get_or(p, "drop_remainder", false)); }},
    {"map", map},
    {"filter", filter},
    {"flat_map", flat_map},
    {"concatenate", [](const Dataset& d, const Json& p) { return d.concatenate(build_pipeline(p.at("other"))); }},
    {"shuffle", shuffle},
    {"repeat", [](const Dataset& d, const Json& p) { return d.repeat(get_or<std::int64_t>(p, "count", -1)); }},
    {"take", [](const Dataset& d, const Json& p) { return d.take(p.at("count")); }},
    {"skip", [](const Dataset& d, const Json& p) { return d.skip(p.at("count")); }},
    {"prefetch", [](const Dataset& d, const Json& p) { return d.prefetch(p.at("count")); }},
    {"options", [](const Dataset& d, const Json& p) { return d.with_options({to_policy(p.at("auto_shard_policy"))}); }},
};

template <typename Table>
auto find_operation(const Table& table, const Json& step) {
  const auto name = step.at("op").template get<std::string>();
  const auto found = table.find(name);
  if (found == table.end()) throw NotApplicable("needs " + name);
  return found->second;
}

// Before anything is built, so that a pipeline is refused whole and not by the errors of its first half.
void require_operations(const Json& pipeline) {
  for (std::size_t i = 0; i < pipeline.size(); ++i) {
    if (i == 0) find_operation(kSources, pipeline[i]);
    else find_operation(kOperations, pipeline[i]);
  }
}

}  // namespace

data::Dataset build_pipeline(const Json& pipeline) {
  require_operations(pipeline);
  auto dataset = find_operation(kSources, pipeline.at(0))(pipeline[0]);
  for (std::size_t i = 1; i < pipeline.size(); ++i) dataset = find_operation(kOperations, pipeline[i])(dataset, pipeline[i]);
  return dataset;
}

bool any_operation(const Json& pipeline, bool (*matches)(const Json& operation)) {
  for (const auto& operation : pipeline) {
    if (matches(operation)) return true;
    if (operation.contains("other") && any_operation(operation["other"], matches)) return true;
    if (!operation.contains("inputs")) continue;
    for (const auto& input : operation["inputs"])
      if (any_operation(input, matches)) return true;
  }
  return false;
}

AutoShardPolicy to_policy(const std::string& name) {
  static const std::map<std::string, AutoShardPolicy> policies = {{"OFF", AutoShardPolicy::kOff},
                                                                  {"AUTO", AutoShardPolicy::kAuto},
                                                                  {"FILE", AutoShardPolicy::kFile},
                                                                  {"DATA", AutoShardPolicy::kData},
                                                                  {"HINT", AutoShardPolicy::kHint}};
  const auto found = policies.find(name);
  if (found == policies.end()) throw NotApplicable("needs the auto shard policy " + name);
  return found->second;
}

}  // namespace lockstep::oracle
