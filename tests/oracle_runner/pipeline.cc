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
std::vector<std::string> paths_of(const Json& parameters) {
  std::vector<std::string> paths;
  for (const auto& name : parameters.at("names")) paths.push_back(file_of(name.get<std::string>()));
  return paths;
}

Dataset files(const Json& parameters) { return text_dataset(parameters.at("names").get<std::vector<std::string>>()); }

Dataset fixed(const Json& parameters) {
  return Dataset::fixed_length_records(paths_of(parameters), {.record = parameters.at("record_bytes"),
                                                              .header = get_or<std::int64_t>(parameters, "header_bytes", 0),
                                                              .footer = get_or<std::int64_t>(parameters, "footer_bytes", 0)});
}

Dataset choose(const Json& parameters) {
  std::vector<Dataset> inputs;
  for (const auto& input : parameters.at("inputs")) inputs.push_back(build_pipeline(input));
  return Dataset::choose_from_datasets(inputs, Dataset::from_tensor_slices(to_tensor(parameters.at("choice"), "int64")));
}

Dataset zip(const Json& parameters) {
  std::vector<Dataset> inputs;
  for (const auto& input : parameters.at("inputs")) inputs.push_back(build_pipeline(input));
  return Dataset::zip(inputs);
}

// One component's shape; null is the longest.
std::vector<std::int64_t> to_shape(const Json& sizes) {
  std::vector<std::int64_t> shape;
  for (const auto& size : sizes) shape.push_back(size.is_null() ? -1 : size.get<std::int64_t>());
  return shape;
}

Dataset padded_batch(const Dataset& input, const Json& p) {
  data::Padding padding{.value = get_or(p, "value", 0.0)};
  if (const auto shapes = get_or<Json>(p, "shapes", nullptr); !shapes.is_null()) padding.shapes = {to_shape(shapes)};
  return input.padded_batch(p.at("size"), padding, get_or(p, "drop_remainder", false));
}

Dataset window(const Dataset& input, const Json& p) {
  const auto flatten = p.at("flatten").get<std::int64_t>();
  const auto shift = p.contains("shift") ? std::optional(p.at("shift").get<std::int64_t>()) : std::nullopt;
  return input.window(
      p.at("size"), [flatten](const Dataset& one) { return one.batch(flatten); }, shift, get_or<std::int64_t>(p, "stride", 1),
      get_or(p, "drop_remainder", false));
}

Dataset scan(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_state_function(name);
  return input.scan(Element(to_tensor(p.at("state"), "int64")), [name](const Element& state, const Element& element) {
    const auto next = next_state(name, state, element);
    return std::pair(next, next);
  });
}

Dataset group_by_window(const Dataset& input, const Json& p) {
  const auto name = p.at("key").get<std::string>();
  require_map_function(name);
  const auto size = p.at("size").get<std::int64_t>();
  return input.group_by_window([name](const Element& element) { return map_element(name, element)[0].item<std::int64_t>(); },
                               size, [size](std::int64_t, const Dataset& group) { return group.batch(size); });
}

Dataset bucket(const Dataset& input, const Json& p) {
  return input.bucket_by_sequence_length([](const Element& element) { return element[0].numel(); }, p.at("boundaries"),
                                         p.at("sizes"));
}

Dataset interleave(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_dataset_function(name);
  return input.interleave([name](const Element& element) { return dataset_from(name, element); }, p.at("cycle"), p.at("block"));
}

Dataset take_while(const Dataset& input, const Json& p) {
  const auto name = p.at("fn").get<std::string>();
  require_condition(name);
  return input.take_while([name](const Element& element) { return holds_for(name, element); });
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
    {"files", files},
    {"tfrecord", [](const Json& p) { return Dataset::tf_record(paths_of(p)); }},
    {"text", [](const Json& p) { return Dataset::text_lines(paths_of(p)); }},
    {"fixed", fixed},
    {"zip", zip},
    {"choose", choose},
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
    {"shard", [](const Dataset& d, const Json& p) { return d.shard(p.at("num_shards"), p.at("index")); }},
    {"interleave", interleave},
    {"take_while", take_while},
    {"window", window},
    {"unbatch", [](const Dataset& d, const Json&) { return d.unbatch(); }},
    {"enumerate", [](const Dataset& d, const Json& p) { return d.enumerate(get_or<std::int64_t>(p, "start", 0)); }},
    {"scan", scan},
    {"cache", [](const Dataset& d, const Json&) { return d.cache(); }},
    {"unique", [](const Dataset& d, const Json&) { return d.unique(); }},
    {"group_by_window", group_by_window},
    {"bucket", bucket},
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

data::Dataset text_dataset(std::vector<std::string> values) {
  data::Bytes bytes{std::move(values), {}};
  bytes.sizes = {static_cast<std::int64_t>(bytes.values.size())};
  return Dataset::from_tensor_slices(Element(std::vector<data::Component>{{"", std::move(bytes)}}));
}

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
